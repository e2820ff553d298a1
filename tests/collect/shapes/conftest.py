"""A script that takes steps, and a spec with it, for tests that run real workers."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.collect import Shape, Spec, TrainingJob
from trimtab.kernel import processes

SCRIPT = """
import os, sys, time
batch, how = int(sys.argv[1]), sys.argv[2]
rank = int(os.environ["RANK"])
held = []
for number in range(1, 100_000):
    start = time.process_time()
    while time.process_time() - start < batch / 1000:
        pass
    if how == "greedy":
        held.append(bytearray(b"x" * 2**20))
    if how == "dies" and number == 8 and rank == int(os.environ["WORLD_SIZE"]) - 1:
        raise ValueError("the disk is on fire")
    if how == "ends" and number == 8:
        break
    loss = "nan" if how == "diverges" and number > 6 else 1 / number
    if rank == 0 and how != "silent":
        print(f"step {number} loss {loss} time {time.time():.4f}", flush=True)
"""

SMALL = Shape("small", 0.2, 64 * 2.0**20, 0.01)
LARGE = Shape("large", 0.4, 256 * 2.0**20, 0.03)


def workers_in(folder: Path) -> list[int]:
    """Processes that work in a folder."""
    return [found.pid for found in processes() if not found.zombie and _folder_of(found.pid) == str(folder)]


def _folder_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


@pytest.fixture
def make_spec(tmp_path: Path, limits: None) -> Callable[..., Spec]:
    """A spec whose only job behaves as told; its batch is the milliseconds of CPU that a step takes."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def make(how: str = "well", batches: tuple[int, ...] = (10,), workers: tuple[int, ...] = (1,)) -> Spec:
        command = f"{sys.executable} script.py {{batch}} {how}"
        job = TrainingJob("job", command, tmp_path, samples=1000, epochs=2.0, batches=batches)
        return Spec((job,), (SMALL, LARGE), workers, "2026-11-15", window=1.0, patience=5.0)

    return make
