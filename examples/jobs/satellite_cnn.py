"""Classifies satellite pictures into ten uses of land: three convolutions and two dense layers.

    python examples/jobs/satellite_cnn.py --batch-size 8

Convolutions on large maps of few channels: almost all of a step is arithmetic that grows with the batch.
"""

import math

import torch
import training
from torch import Tensor, nn
from torch.utils.data import Dataset

USES = 10
SIZE = 64
POOL = 15_000  # kept in memory, as all of a data set of this size could be
TOGETHER = 250  # pictures of one use that are made at a time


class Land(Dataset[tuple[Tensor, int]]):
    """Colour pictures of 64 × 64; a use of land is a colour and furrows of some width and direction.

    A picture comes back mirrored or not, by its index.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(6)
        self.uses = torch.arange(POOL) % USES
        self.pictures = torch.empty(POOL, 3, SIZE, SIZE).normal_(std=0.25, generator=random)
        right, down = torch.arange(SIZE), torch.arange(SIZE)[:, None]
        for use in range(USES):
            tint = torch.rand(3, 1, 1, generator=random) - 0.5
            for pictures in self.pictures[use::USES].split(TOGETHER):
                turn, light = torch.rand(2, len(pictures), 1, 1, 1, generator=random)
                angle = math.pi * (use / USES + 0.1 * turn)
                across = right * torch.cos(angle) + down * torch.sin(angle)
                furrows = torch.sin((0.3 + 0.25 * (use % 3)) * across)
                pictures += (0.6 + 0.8 * light) * (tint + 0.3 * furrows)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = index % POOL
        picture = self.pictures[place]
        return picture.flip(1) if index // POOL % 2 else picture, int(self.uses[place])


def seeing(channels_in: int, channels: int) -> nn.Sequential:
    """A convolution, and the brightest of every four points."""
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


def build_model(width: int = 16) -> nn.Module:
    """(batch, 3, 64, 64) to (batch, uses)."""
    return nn.Sequential(
        seeing(3, width),
        seeing(width, 2 * width),
        seeing(2 * width, 4 * width),
        nn.Flatten(),
        nn.Linear(4 * width * (SIZE // 8) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, USES),
    )


def main() -> None:
    """Train with gradient descent and momentum."""
    options = training.read_options(__doc__, batch_size=8, epochs=20, learning_rate=0.005, samples=27_000)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    training.train(model, optimizer, Land(options.samples), options)


if __name__ == "__main__":
    main()
