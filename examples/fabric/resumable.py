"""Shared by the jobs in this folder: options, rendezvous of workers, checkpoints, printing.

Started alone, a job trains alone. Started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the
environment, as `torchrun` does, it is one of WORLD_SIZE workers that talk over gloo, through the network
device that GLOO_SOCKET_IFNAME names. The first worker prints

    loaded 20 seconds 0.012         a checkpoint, from which it goes on after step 20
    ready time 1731712345.123       the first step begins
    step 21 loss 0.431200 time 1731712345.456
    saved 30 seconds 0.034          a checkpoint
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed


def new_parser(description: str | None, steps: int) -> argparse.ArgumentParser:
    """The options every job has; a job adds its own."""
    parser = argparse.ArgumentParser(description=description and description.splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps, help="of all runs together")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="go on from it, and write it")
    parser.add_argument("--every", type=int, default=10, metavar="N", help="steps between checkpoints")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds a worker waits for others")
    parser.add_argument("--threads", type=int, default=1, help="of one worker's arithmetic")
    return parser


def read_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the options, and seed the random numbers."""
    options = parser.parse_args()
    for name, value in vars(options).items():
        if isinstance(value, int | float) and value <= 0:
            parser.error(f"--{name.replace('_', '-')} is {value:g}; it must be above 0")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return options


def workers() -> int:
    """Number of processes that work together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is; 0 speaks for all."""
    return int(os.environ.get("RANK", "0"))


def random_of(*numbers: int) -> torch.Generator:
    """Random numbers that depend on nothing but these: on the step, say, and not on the steps before it."""
    seed = 0
    for number in numbers:
        seed = seed * 1_000_003 + number + 1
    return torch.Generator().manual_seed(seed % 2**63)


@contextmanager
def together(timeout: float) -> Iterator[None]:
    """All workers have met, and part at the end."""
    if workers() == 1:
        yield
        return
    distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    try:
        yield
    finally:
        # What still holds on to the group, as `DistributedDataParallel` does, would end it when the
        # interpreter ends; there its threads sometimes wait for each other forever.
        gc.collect()
        distributed.destroy_process_group()


def say(line: str) -> None:
    """The first worker's word."""
    if rank() == 0:
        print(line, flush=True)


def say_ready() -> None:
    """All is built and loaded; the first step begins."""
    say(f"ready time {time.time():.3f}")


def say_step(step: int, loss: float) -> None:
    """A step has ended."""
    say(f"step {step} loss {loss:.6f} time {time.time():.3f}")


def mean_of_all(value: Tensor) -> float:
    """The mean over all workers, which each of them gets."""
    total = value.detach().clone()
    if workers() > 1:
        distributed.all_reduce(total)
    return total.item() / workers()


class Checkpoint:
    """A job's state on disk. A kill at any moment leaves either the old one or the new one.

    The first `parts` workers write FILE.STEP.RANK each; when all have, the first writes FILE, which holds the
    step and the number of parts. Parts are removed when FILE has named a newer step for certain.
    """

    def __init__(self, options: argparse.Namespace, parts: int) -> None:
        self.file: Path | None = options.checkpoint
        self.every: int = options.every
        self.parts = parts
        self.kept: list[Path] = []

    def load(self) -> tuple[int, Any]:
        """The step it was saved after, and the state; 0 and None where there is none."""
        if self.file is None or not self.file.exists():
            return 0, None
        start = time.monotonic()
        step, parts = map(int, self.file.read_text().split())
        if parts != self.parts:
            sys.exit(
                f"{self.file} has {parts} parts; go on with as many workers, or give another --checkpoint"
            )
        part = self._part(step, rank() if self.parts > 1 else 0)
        state = torch.load(part, weights_only=True)
        if rank() < self.parts:
            self.kept.append(part)
            for other in set(self.file.parent.glob(f"{self.file.name}.*.{rank()}")) - {part}:
                other.unlink()  # of a run that was killed
        say(f"loaded {step} seconds {time.monotonic() - start:.4f}")
        return step, state

    def due(self, step: int) -> bool:
        """Whether to save after this step."""
        return self.file is not None and step % self.every == 0

    def save(self, step: int, state: Any) -> None:
        """Every worker must call this after the same step."""
        assert self.file is not None
        start = time.monotonic()
        if rank() < self.parts:
            part = self._part(step, rank())
            _write_whole(part, lambda file: torch.save(state, file))
            self.kept.append(part)
        if workers() > 1:
            distributed.barrier()
        if rank() == 0:
            _write_whole(self.file, lambda file: file.write(f"{step} {self.parts}\n".encode()))
        while len(self.kept) > 2:
            self.kept.pop(0).unlink(missing_ok=True)
        say(f"saved {step} seconds {time.monotonic() - start:.4f}")

    def _part(self, step: int, worker: int) -> Path:
        assert self.file is not None
        return self.file.with_name(f"{self.file.name}.{step}.{worker}")


def _write_whole(path: Path, write: Any) -> None:
    """All of it is on the disk before it has its name."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
