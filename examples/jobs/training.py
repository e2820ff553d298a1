"""Shared by the jobs in this folder: options, distributed workers, the training loop.

Started alone, a job trains alone. Started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the
environment, as `torchrun` does, it is one of WORLD_SIZE workers, which average their gradients over gloo.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

Loss = Callable[[Tensor, Tensor], Tensor]


def read_options(
    description: str | None, *, batch_size: int, epochs: int, learning_rate: float, samples: int
) -> argparse.Namespace:
    """The command line every job has; the values given are the job's own defaults."""
    parser = argparse.ArgumentParser(description=description and description.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=batch_size, help="of each worker")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--learning-rate", type=float, default=learning_rate)
    parser.add_argument("--samples", type=int, default=samples, help="length of the data set")
    parser.add_argument("--threads", type=int, default=1, help="of one worker's arithmetic")
    options = parser.parse_args()
    if options.batch_size < 1 or options.samples < options.batch_size * workers():
        parser.error("--samples must fill at least one batch of --batch-size on every worker")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return options


def workers() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is; 0 speaks for all."""
    return int(os.environ.get("RANK", "0"))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: Dataset[Any],
    options: argparse.Namespace,
    loss_of: Loss = functional.cross_entropy,
    collate: Callable[[list[Any]], Any] | None = None,
) -> None:
    """Run all epochs. A batch is the model's inputs, then the labels; a label below 0 does not count."""
    sampler: DistributedSampler[Any] = DistributedSampler(samples, workers(), rank(), shuffle=True)
    loader = DataLoader(samples, options.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)
    _say(f"parameters {sum(parameter.numel() for parameter in model.parameters())}")
    step = 0
    with _together(model) as replica:
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            right = counted = 0
            for *inputs, labels in loader:
                logits = replica(*inputs)
                loss = loss_of(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                right += int((logits.argmax(-1) == labels).sum())
                counted += int((labels >= 0).sum())
                _say(f"step {step} loss {loss.item():.4f} time {time.time():.3f}")
            _say(f"epoch {epoch + 1} accuracy {right / counted:.3f}")


@contextmanager
def _together(model: nn.Module) -> Iterator[nn.Module]:
    """The model as trained by all workers: itself if there is only one."""
    if workers() == 1:
        yield model
        return
    distributed.init_process_group("gloo")
    try:
        yield DistributedDataParallel(model)
    finally:
        distributed.destroy_process_group()


def _say(line: str) -> None:
    if rank() == 0:
        print(line, flush=True)
