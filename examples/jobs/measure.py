"""Measures each job alone, for each batch size in `collect.yaml`, and prints the table in the README.

    python examples/jobs/measure.py

CPU time is the least that ten steps took, so that a busy machine changes it little. Memory is the peak that
was resident, of which about 90 MiB are code shared with whatever else uses PyTorch.
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import psutil
import yaml

HERE = Path(__file__).resolve().parent
STEPS = 60
STRIDE = 10


def measure(command: str) -> tuple[int, float, int]:
    """Parameters, CPU seconds of a step, bytes of memory at the peak, after a few dozen steps."""
    words = [sys.executable, *command.split()[1:]]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(words, cwd=HERE, env=variables, stdout=subprocess.PIPE, text=True)
    process, parameters, used = psutil.Process(job.pid), 0, []
    try:
        for line in job.stdout or ():
            kind, number, *_ = line.split()
            if kind == "parameters":
                parameters = int(number)
            if kind == "step" and int(number) % STRIDE == 0:
                times = process.cpu_times()
                used.append(times.user + times.system)
                if int(number) == STEPS:
                    break
        peak = int(Path(f"/proc/{job.pid}/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    finally:
        job.kill()
        job.wait()
    return parameters, min(b - a for a, b in itertools.pairwise(used)) / STRIDE, peak


def main() -> None:
    """One row for each job."""
    for name, job in yaml.safe_load((HERE / "collect.yaml").read_text())["jobs"].items():
        found = [measure(job["command"].format(batch=batch)) for batch in job["batches"]]
        cells = (
            name,
            f"{found[0][0]:,}",
            " / ".join(map(str, job["batches"])),
            " / ".join(f"{1000 * seconds:.0f}" for _, seconds, _ in found),
            " / ".join(f"{peak / 2**20:.0f}" for _, _, peak in found),
        )
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
