"""Classifies pictures into ten kinds: a residual network, trained data-parallel.

    torchrun --nproc-per-node 2 examples/fabric/pictures_resnet.py --steps 100

Every worker has the whole model and its own pictures; after each step they average their gradients with
`DistributedDataParallel`. A dead link holds up all of them at the next all-reduce.
"""

import argparse

import resumable
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

KINDS = 10
SIZE = 32


def pictures(step: int, count: int) -> tuple[Tensor, Tensor]:
    """Colour pictures of 32 × 32, each worker's own, and their kinds; a kind is a pattern under noise."""
    patterns = torch.randn(KINDS, 3, SIZE, SIZE, generator=resumable.random_of(1))
    random = resumable.random_of(2, step, resumable.rank())
    kinds = torch.randint(KINDS, (count,), generator=random)
    noise = torch.randn(count, 3, SIZE, SIZE, generator=random)
    return 0.5 * patterns[kinds] + noise, kinds


class Block(nn.Module):
    """Two convolutions beside a shortcut; with a stride, half the size and twice the channels."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same, or to half of height and width."""
        hidden = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(hidden)) + self.shortcut(x))


def build_model(width: int, blocks: int) -> nn.Module:
    """(batch, 3, 32, 32) to (batch, kinds): three groups of blocks, each half the size of the one before."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    for group in range(3):
        channels_in, channels = width * 2 ** max(0, group - 1), width * 2**group
        for block in range(blocks):
            first = block == 0
            layers.append(Block(channels_in if first else channels, channels, 2 if first and group else 1))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, KINDS))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    checkpoint: resumable.Checkpoint,
    done: int,
    options: argparse.Namespace,
) -> None:
    """All steps that are left after so many."""
    replica = DistributedDataParallel(model) if resumable.workers() > 1 else model
    resumable.say_ready()
    for step in range(done + 1, options.steps + 1):
        inputs, kinds = pictures(step, options.batch_size)
        loss = functional.cross_entropy(replica(inputs), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        resumable.say_step(step, resumable.mean_of_all(loss))
        if checkpoint.due(step):
            checkpoint.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def main() -> None:
    """Train with gradient descent and momentum."""
    parser = resumable.new_parser(__doc__, steps=200)
    parser.add_argument("--batch-size", type=int, default=16, help="of each worker")
    parser.add_argument("--width", type=int, default=16, help="channels of the first group")
    parser.add_argument("--blocks", type=int, default=3, help="in each of the three groups")
    options = resumable.read_options(parser)
    model = build_model(options.width, options.blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoint = resumable.Checkpoint(options, parts=1)
    done, state = checkpoint.load()
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    with resumable.together(options.timeout):
        train(model, optimizer, checkpoint, done, options)


if __name__ == "__main__":
    main()
