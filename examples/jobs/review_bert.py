"""Classifies reviews as good or bad: a small BERT and a classifier.

    python examples/jobs/review_bert.py --batch-size 8

In these reviews a "not" turns the opinion after it around, so the order of words matters. Matrix products
make up most of a step: its cost grows with the batch.
"""

import torch
import training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

VOCABULARY = 4000
READ, NOT = 0, 1  # the mark every review starts with, whose final state is the whole review's; the negation
OPINIONS = 50  # words that praise, after the two marks; as many that blame after them
WORDS = 48
POOL = 4096


class Reviews(Dataset[tuple[Tensor, int]]):
    """Reviews of 48 words in which about one in five is an opinion and three in ten opinions are negated."""

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(3)
        self.verdicts = torch.arange(POOL) % 2
        words = torch.randint(2 + 2 * OPINIONS, VOCABULARY, (POOL, WORDS), generator=random)
        for place in range(2, WORDS, 5):
            negated = torch.rand(POOL, generator=random) < 0.3
            blame = (1 - self.verdicts) ^ negated.long()
            words[:, place] = 2 + OPINIONS * blame + torch.randint(OPINIONS, (POOL,), generator=random)
            words[negated, place - 1] = NOT
        words[:, 0] = READ
        self.words = words

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = index % POOL
        return self.words[place], int(self.verdicts[place])


class Layer(nn.Module):
    """Attention among all words, then a dense network for each, both around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.dense_norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, words, width) to the same."""
        batch, words, width = x.shape
        mixed = self.queries_keys_values(self.attention_norm(x))
        query, key, value = mixed.view(batch, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.attended(attention.transpose(1, 2).reshape(batch, words, width))
        changed: Tensor = x + self.dense(self.dense_norm(x))
        return changed


class BertClassifier(nn.Module):
    """Word and place vectors, encoder layers, and a classifier of the first word's final state."""

    def __init__(self, width: int = 128, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(WORDS, width)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.1)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.verdict = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, words: Tensor) -> Tensor:
        """(batch, words) to (batch, 2)."""
        read = self.layers(self.words(words) + self.places.weight)
        logits: Tensor = self.verdict(read[:, 0])
        return logits


def main() -> None:
    """Train with AdamW."""
    options = training.read_options(__doc__, batch_size=8, epochs=20, learning_rate=1e-3, samples=25_000)
    model = BertClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    training.train(model, optimizer, Reviews(options.samples), options)


if __name__ == "__main__":
    main()
