"""A program that saves its state after every step and resumes from it; its result is known."""

COUNT = """
import json, os, sys, time
folder, steps = sys.argv[1], 40
state = {"step": 0, "sum": 0}
if os.path.exists(f"{folder}/checkpoint"):
    state = json.load(open(f"{folder}/checkpoint"))
    print("resumed at", state["step"], flush=True)
while state["step"] < steps:
    state = {"step": state["step"] + 1, "sum": (state["sum"] * 31 + state["step"]) % 1000003}
    json.dump({**state, "pid": os.getpid()}, open(f"{folder}/new", "w"))
    os.replace(f"{folder}/new", f"{folder}/checkpoint")
    time.sleep(0.02)
json.dump(state, open(f"{folder}/result", "w"))
"""
"""Argument: a folder; its file `checkpoint` also has the process id, and `result` the result."""
