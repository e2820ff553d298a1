"""Classifies reviews as good or bad: a dense network over a bag of words.

    python examples/jobs/review_dense.py --batch-size 64

The first layer holds nearly all of the parameters, and Adam keeps two more numbers for each: the update is a
large fixed part of every step, and so is the gradient to send. All bags are made once and kept.
"""

import torch
import training
from torch import Tensor, nn
from torch.utils.data import Dataset

VOCABULARY = 8000
OPINIONS = 300  # the first words of the vocabulary praise, as many after them blame
WORDS = 120
POOL = 20_000


class Reviews(Dataset[tuple[Tensor, int]]):
    """Reviews of 120 words; every tenth is an opinion, and four in five opinions agree with the verdict."""

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(2)
        self.verdicts = torch.arange(POOL) % 2
        plain = torch.randint(2 * OPINIONS, VOCABULARY, (POOL, WORDS), generator=random)
        agrees = torch.rand(POOL, WORDS, generator=random) < 0.8
        side = torch.where(agrees, self.verdicts[:, None], 1 - self.verdicts[:, None])
        opinions = torch.randint(OPINIONS, (POOL, WORDS), generator=random) + OPINIONS * side
        words = torch.where(torch.rand(POOL, WORDS, generator=random) < 0.1, opinions, plain)
        self.bags = torch.zeros(POOL, VOCABULARY).scatter_(1, words, 1.0)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = index % POOL
        return self.bags[place], int(self.verdicts[place])


def build_model() -> nn.Module:
    """(batch, vocabulary) to (batch, 2)."""
    return nn.Sequential(
        nn.Linear(VOCABULARY, 256),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, 2),
    )


def main() -> None:
    """Train with Adam."""
    options = training.read_options(__doc__, batch_size=64, epochs=100, learning_rate=5e-4, samples=25_000)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    training.train(model, optimizer, Reviews(options.samples), options)


if __name__ == "__main__":
    main()
