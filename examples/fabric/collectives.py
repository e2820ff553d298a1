"""Times five collective operations between workers, with messages of several sizes.

    torchrun --nproc-per-node 2 examples/fabric/collectives.py --steps 20 --bytes 65536 1048576

A step is each operation once with each size. Its loss is the largest error in any result, and must be 0. At
the end the first worker prints, for each operation and size, how often it was timed, the median and the worst
of the seconds it took, and bytes per second through a worker's device at the median:

    collective all_reduce bytes 65536 times 20 seconds 0.000184 worst 0.000412 rate 3.56e+08
"""

import statistics
import time
from collections.abc import Callable

import resumable
import torch
from torch import Tensor, distributed

Operation = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""Takes this worker's message; gives what came of it, and what should have."""


def sum_of_all() -> float:
    """Sum of the workers' numbers, counted from 1."""
    return resumable.workers() * (resumable.workers() + 1) / 2


def all_reduce(message: Tensor) -> tuple[Tensor, float]:
    """Everyone gets the sum of all messages."""
    distributed.all_reduce(message)
    return message, sum_of_all()


def all_gather(message: Tensor) -> tuple[Tensor, Tensor]:
    """Everyone sends a part of the size of a message and gets all parts."""
    parts = torch.empty(resumable.workers(), len(message) // resumable.workers())
    distributed.all_gather(list(parts), message[: parts.shape[1]])
    return parts, torch.arange(1.0, resumable.workers() + 1)[:, None]


def broadcast(message: Tensor) -> tuple[Tensor, float]:
    """Everyone gets the first worker's message."""
    distributed.broadcast(message, 0)
    return message, 1.0


def reduce_scatter(message: Tensor) -> tuple[Tensor, float]:
    """Everyone gets a part of the sum of all messages."""
    parts = message[: len(message) // resumable.workers() * resumable.workers()].chunk(resumable.workers())
    part = torch.empty_like(parts[0])
    distributed.reduce_scatter(part, list(parts))
    return part, sum_of_all()


def send_receive(message: Tensor) -> tuple[Tensor, float]:
    """Everyone sends to the next, and gets what the one before has sent."""
    before = (resumable.rank() - 1) % resumable.workers()
    received = torch.empty_like(message)
    sent = distributed.isend(message, (resumable.rank() + 1) % resumable.workers())
    distributed.recv(received, before)
    assert sent is not None
    sent.wait()
    return received, before + 1.0


def shares() -> dict[Operation, float]:
    """The operations, and how much of a message each worker sends and receives at best."""
    others = (resumable.workers() - 1) / resumable.workers()
    return {
        all_reduce: 2 * others,
        all_gather: others,
        broadcast: 1.0,
        reduce_scatter: others,
        send_receive: 1.0,
    }


def timed(operation: Operation, size: int) -> tuple[float, float]:
    """Seconds that it takes once all are there, and the largest error in its result."""
    message = torch.full((size // 4,), resumable.rank() + 1.0)
    distributed.barrier()
    start = time.monotonic()
    result, right = operation(message)
    taken = time.monotonic() - start
    return taken, (result - right).abs().max().item()


def main() -> None:
    """Each operation with each size, over and over."""
    parser = resumable.new_parser(__doc__, steps=20)
    parser.add_argument("--bytes", type=int, nargs="+", default=[2**10, 2**16, 2**20, 2**23])
    options = resumable.read_options(parser)
    if resumable.workers() < 2 or min(options.bytes) < 4 * resumable.workers():
        parser.error("two workers or more, and a number of 4 bytes for each of them in the smallest message")
    checkpoint = resumable.Checkpoint(options, parts=1)
    done, state = checkpoint.load()
    seconds: dict[str, list[float]] = state or {}
    with resumable.together(options.timeout):
        resumable.say_ready()
        for step in range(done + 1, options.steps + 1):
            error = 0.0
            for operation in shares():
                for size in options.bytes:
                    taken, off = timed(operation, size)
                    seconds.setdefault(f"{operation.__name__} {size}", []).append(taken)
                    error = max(error, off)
            resumable.say_step(step, resumable.mean_of_all(torch.tensor(error)))
            if checkpoint.due(step):
                checkpoint.save(step, seconds)
    for operation, share in shares().items():
        for size in options.bytes:
            times = seconds[f"{operation.__name__} {size}"]
            middle = statistics.median(times)
            resumable.say(
                f"collective {operation.__name__} bytes {size} times {len(times)} "
                f"seconds {middle:.6f} worst {max(times):.6f} rate {size * share / middle:.3g}"
            )


if __name__ == "__main__":
    main()
