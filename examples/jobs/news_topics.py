"""Sorts news into four topics: the mean of a text's word vectors, then one linear layer.

    python examples/jobs/news_topics.py --batch-size 64

Nearly all parameters are word vectors, of which a batch touches few; yet the whole table is updated, and its
gradient is sent, in every step. So a step costs almost the same whatever the batch.
"""

import torch
import training
from torch import Tensor, nn
from torch.utils.data import Dataset

TOPICS = 4
VOCABULARY = 30_000
JARGON = 150  # words that belong to a topic; those of topic t start at t * JARGON
POOL = 4096


class News(Dataset[tuple[Tensor, int]]):
    """Texts of 20 to 60 words, about a quarter of them the jargon of the text's topic."""

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(1)
        self.topics = torch.arange(POOL) % TOPICS
        self.sizes = torch.randint(20, 61, (POOL,), generator=random)
        common = torch.randint(TOPICS * JARGON, VOCABULARY, (POOL, 60), generator=random)
        jargon = torch.randint(JARGON, (POOL, 60), generator=random) + JARGON * self.topics[:, None]
        self.words = torch.where(torch.rand(POOL, 60, generator=random) < 0.25, jargon, common)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = index % POOL
        return self.words[place, : self.sizes[place]], int(self.topics[place])


def join(texts: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """All words in one row, where each text starts in it, and the topics."""
    sizes = torch.tensor([len(words) for words, _ in texts])
    starts = sizes.cumsum(0) - sizes
    return torch.cat([words for words, _ in texts]), starts, torch.tensor([topic for _, topic in texts])


class TopicClassifier(nn.Module):
    """One linear layer on the mean of the word vectors."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(VOCABULARY, width)
        self.topic = nn.Linear(width, TOPICS)
        nn.init.uniform_(self.vectors.weight, -0.5, 0.5)

    def forward(self, words: Tensor, starts: Tensor) -> Tensor:
        """(words of all texts), (texts) to (texts, topics)."""
        logits: Tensor = self.topic(self.vectors(words, starts))
        return logits


def main() -> None:
    """Train with plain gradient descent at a high rate, as bags of embeddings like it."""
    options = training.read_options(__doc__, batch_size=64, epochs=100, learning_rate=5.0, samples=120_000)
    model = TopicClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)
    training.train(model, optimizer, News(options.samples), options, collate=join)


if __name__ == "__main__":
    main()
