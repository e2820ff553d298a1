"""Benchmarks: one module or package per published result, measured against rules and peers in one run.

A bench is a module with `run(options) -> BenchResult`; adding one is a file and a line in `BENCHES`.
"""

from importlib import import_module

from trimtab.core import NotFoundError
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable

__all__ = ["BENCHES", "BenchOptions", "BenchResult", "ResultTable", "run_bench"]

BENCHES = {
    "gpu-steps": ("gpu_steps", "Step time and memory estimates against measurements on an H200."),
    "devices": ("devices", "Step time estimates against published measurements on devices of others."),
    "fewshot": ("fewshot", "An unseen application's run time from one to three known runs."),
    "profile-overhead": ("profile_overhead", "Step time that `trimtab profile` adds to a script."),
    "live": ("live", "Profile on the CPU, estimate elsewhere, run there and compare."),
    "durations": (
        "durations",
        "Remaining run time of jobs, learned from those that ended: rule, model and guard.",
    ),
    "search": ("search", "Time of a recommendation over 20,000 configurations and of a catalog query."),
    "resize": ("resize", "Containers under load: latency and slack of Trimtab's limits and of others'."),
    "resize-scale": (
        "resize_scale",
        "Sizing 100,000 containers and 200 nodes: CPU time, waits and missed periods.",
    ),
    "schedule": (
        "schedule",
        "Jobs on mixed accelerators: Trimtab's policy and nine others on the same traces.",
    ),
    "partition": (
        "partition",
        "Models over unequal devices: Trimtab, the optimum and six others, and steps that really run.",
    ),
    "fabric": (
        "fabric",
        "Traffic over two uplinks: outages, false failovers, throughput, training; FRR alone and one port.",
    ),
    "serve": (
        "serve",
        "The server under load: reads, writes, event streams, a large store, a leader that is killed.",
    ),
    "chaos": (
        "chaos",
        "The whole system under kills, stops, clock jumps, full disks, database restarts: is anything lost?",
    ),
    "training-config": (
        "training_config",
        "Configurations of training jobs: seen, unseen, after trials, and searches of others' measurements.",
    ),
}


def run_bench(name: str, options: BenchOptions) -> BenchResult:
    if name not in BENCHES:
        raise NotFoundError(f'there is no bench "{name}"; the benches are {", ".join(BENCHES)}')
    result: BenchResult = import_module(f"trimtab_bench.{BENCHES[name][0]}").run(options)
    return result
