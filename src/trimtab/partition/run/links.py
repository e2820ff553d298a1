"""How fast two processes of this machine hand tensors to each other: the network of local devices."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from trimtab.partition.run.folders import meeting_folder
from trimtab.partition.run.processes import run_processes, worker

SIZES = tuple(4096 * 4**power for power in range(7))
"""Bytes of the messages: 4 KiB to 16 MiB."""
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Link:
    """`bandwidth` in B/s and `latency` in seconds of a message; `seconds` of each size, one way."""

    bandwidth: float
    latency: float
    seconds: dict[int, float]


def measure_link(timeout: float = 120.0) -> Link:
    """Send messages of many sizes to and fro between two processes over gloo on loopback.

    Of each size it is the lower quartile that counts: what else runs on the machine only makes it slower.
    """
    with meeting_folder() as folder:
        run_processes(
            2,
            lambda rank: worker("link", folder, rank),
            folder,
            timeout,
            1,
            lambda rank: f"end {rank} of the link",
        )
        lines = (folder / "seconds.txt").read_text().split()
    return fitted(dict(zip(SIZES, map(float, lines), strict=True)))


def fitted(seconds: dict[int, float]) -> Link:
    """The link for which size / bandwidth + latency comes nearest to the times, in proportion."""
    import numpy as np

    sizes, times = np.array(list(seconds), dtype=float), np.array(list(seconds.values()))
    columns = np.stack([sizes / times, 1.0 / times], axis=1)
    per_byte, latency = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    largest = max(seconds)
    slope = per_byte if per_byte > 0 else seconds[largest] / largest
    return Link(float(1.0 / slope), float(min(max(latency, 0.0), min(seconds.values()))), seconds)


def run_end(folder: Path, rank: int) -> None:
    """One end of the link: rank 0 sends first and writes down the times."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        lines = []
        for size in SIZES:
            message = torch.zeros(size, dtype=torch.uint8)
            times = []
            for _ in range(_ROUNDS):
                began = time.perf_counter()
                for sender in (0, 1):
                    if rank == sender:
                        dist.send(message, 1 - rank)
                    else:
                        dist.recv(message, 1 - rank)
                times.append((time.perf_counter() - began) / 2)
            lines.append(f"{quantiles(times, n=4)[0]}\n")
        if rank == 0:
            (folder / "seconds.txt").write_text("".join(lines))
        dist.barrier()
    finally:
        dist.destroy_process_group()
