"""A job that only counts: prints steps, keeps checkpoints, and goes wrong in the ways that it is told to."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--pause", type=float, default=0.005)
parser.add_argument("--checkpoint", type=Path)
parser.add_argument("--every", type=int, default=2)
parser.add_argument("--fail-at", type=int)
parser.add_argument("--hang", action="store_true")
parser.add_argument("--silent", action="store_true", help="says nothing but its steps")
parser.add_argument("--pids", type=Path, help="where to note its process, and a child that it starts")
options = parser.parse_args()
first = os.environ["RANK"] == "0"


def say(line: str) -> None:
    if first and not options.silent:
        print(line)


if options.pids is not None:
    child = subprocess.Popen(["sleep", "300"])
    (options.pids / f"rank{os.environ['RANK']}").write_text(f"{os.getpid()} {child.pid}")
done = 0
if options.checkpoint is not None and options.checkpoint.exists():
    done = int(options.checkpoint.read_text())
    say(f"loaded {done} seconds 0.002")
say(f"ready time {time.time():.3f}")
for step in range(done + 1, options.steps + 1):
    time.sleep(options.pause)
    if step == options.fail_at:
        sys.exit(f"step {step} went wrong")
    if first:
        print(f"step {step} loss {1 / step:.6f} time {time.time():.3f}")
    if options.checkpoint is not None and first and step % options.every == 0:
        options.checkpoint.write_text(str(step))
        say(f"saved {step} seconds 0.001")
if options.hang:
    time.sleep(300)
