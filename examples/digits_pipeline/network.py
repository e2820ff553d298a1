"""The network of the digits pipeline: three convolutions with dropout between, a dense layer, softmax."""

import torch
from torch import Tensor, nn


class DigitNetwork(nn.Module):
    """Pictures of 28 × 28 in, ten probabilities out."""

    def __init__(self, width: int = 16, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.dense = nn.Linear(4 * width * 4 * 4, 10)

    def logits(self, pictures: Tensor) -> Tensor:
        """(n, 1, 28, 28) to (n, 10), before the softmax, which the loss has in it."""
        answer: Tensor = self.dense(self.layers(pictures))
        return answer

    def forward(self, pictures: Tensor) -> Tensor:
        """(n, 1, 28, 28) to (n, 10): how probable each digit is."""
        return torch.softmax(self.logits(pictures), dim=1)
