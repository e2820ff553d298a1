"""Classifies satellite pictures like `satellite_cnn.py`, with a network in the manner of VGG.

    python examples/jobs/satellite_vgg.py --batch-size 8

Pairs of small convolutions, and a classifier of dense layers that hold nearly all of seven million
parameters: much to compute, much to keep, much to send.
"""

import torch
import training
from satellite_cnn import SIZE, USES, Land
from torch import Tensor, nn


def stage(channels_in: int, channels: int, stride: int = 1) -> nn.Sequential:
    """Two convolutions, each normalised, and half the size; the first may already leave points out."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 3, stride, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class VggClassifier(nn.Module):
    """Three stages of convolutions, then three dense layers."""

    def __init__(self, width: int = 12, dense: int = 4096) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            stage(3, width, stride=2), stage(width, 2 * width), stage(2 * width, 4 * width)
        )
        self.use = nn.Sequential(
            nn.Flatten(),
            nn.Linear(4 * width * (SIZE // 16) ** 2, dense),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(dense, 1024),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(1024, USES),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, 3, 64, 64) to (batch, uses)."""
        logits: Tensor = self.use(self.stages(pictures))
        return logits


def main() -> None:
    """Train with gradient descent and momentum."""
    options = training.read_options(__doc__, batch_size=8, epochs=10, learning_rate=0.01, samples=27_000)
    model = VggClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    training.train(model, optimizer, Land(options.samples), options)


if __name__ == "__main__":
    main()
