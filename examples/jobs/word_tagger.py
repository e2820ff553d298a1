"""Tags each word of a sentence with its part of speech: a bidirectional LSTM.

    python examples/jobs/word_tagger.py --batch-size 32

An LSTM takes one word after the other: many small matrix products,
which cost far less per sentence when a batch has many.
"""

import torch
import training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

TAGS = 17
FORMS = 200  # words that can be tag t start at t * FORMS; the upper half of them can also be tag t + 1
WORDS = 32
POOL = 4096
NOTHING = -1  # the tag after a sentence's end, which does not count


class Sentences(Dataset[tuple[Tensor, Tensor]]):
    """Sentences of 8 to 32 words, filled up to 32. Some words fit two tags: the one before says which."""

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(4)
        tags = torch.randint(TAGS, (POOL, WORDS), generator=random)
        for place in range(1, WORDS):
            follows = torch.rand(POOL, generator=random) < 0.6
            tags[follows, place] = (3 * tags[follows, place - 1] + 1) % TAGS
        shared = torch.rand(POOL, WORDS, generator=random) < 0.25
        forms = torch.randint(FORMS // 2, (POOL, WORDS), generator=random)
        own = tags * FORMS + forms
        lent = (tags - 1) % TAGS * FORMS + FORMS // 2 + forms
        sizes = torch.randint(8, WORDS + 1, (POOL, 1), generator=random)
        ended = torch.arange(WORDS) >= sizes
        self.words = torch.where(shared, lent, own).masked_fill(ended, TAGS * FORMS)
        self.tags = tags.masked_fill(ended, NOTHING)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        place = index % POOL
        return self.words[place], self.tags[place]


class Tagger(nn.Module):
    """Word vectors, an LSTM that reads forwards and one backwards, a linear layer for each word."""

    def __init__(self, width: int = 64, hidden: int = 96) -> None:
        super().__init__()
        self.vectors = nn.Embedding(TAGS * FORMS + 1, width, padding_idx=TAGS * FORMS)
        self.reader = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(2 * hidden, TAGS)

    def forward(self, words: Tensor) -> Tensor:
        """(batch, words) to (batch, words, tags)."""
        read, _ = self.reader(self.vectors(words))
        logits: Tensor = self.tag(read)
        return logits


def tag_loss(logits: Tensor, tags: Tensor) -> Tensor:
    """Cross entropy over the words that are there."""
    return functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=NOTHING)


def main() -> None:
    """Train with Adam."""
    options = training.read_options(__doc__, batch_size=32, epochs=150, learning_rate=2e-3, samples=12_500)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    training.train(model, optimizer, Sentences(options.samples), options, tag_loss)


if __name__ == "__main__":
    main()
