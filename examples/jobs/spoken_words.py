"""Recognises spoken words from the sound itself: one-dimensional convolutions over wave forms.

    python examples/jobs/spoken_words.py --batch-size 16

The network is tiny but what flows through it is large: little to send, much to compute and to keep for each
recording.
"""

import math

import torch
import training
from torch import Tensor, nn
from torch.utils.data import Dataset

VOICES = 8  # words to tell apart
RATE = 8000  # samples in a second, which is how long a recording is
POOL = 9000
TOGETHER = 125  # recordings of one word that are made at a time


class Recordings(Dataset[tuple[Tensor, int]]):
    """A second of sound: a word is two tones, one after the other, of uncertain pitch, start and loudness."""

    def __init__(self, length: int) -> None:
        self.length = length
        random = torch.Generator().manual_seed(5)
        self.words = torch.arange(POOL) % VOICES
        self.waves = torch.empty(POOL, RATE).normal_(std=0.3, generator=random)
        seconds = torch.arange(RATE) / RATE
        for word in range(VOICES):
            first, second = 250.0 * 2 ** (word // 2), 1400.0 if word % 2 else 350.0
            for waves in self.waves[word::VOICES].split(TOGETHER):
                pitch, change, loudness = torch.rand(3, len(waves), 1, generator=random)
                tones = torch.where(seconds < 0.3 + 0.4 * change, first, second) * (0.95 + 0.1 * pitch)
                waves += (0.5 + loudness) * torch.sin(2 * math.pi * tones * seconds)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = index % POOL
        return self.waves[place : place + 1], int(self.words[place])


def hearing(channels_in: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution over time, normalised, and the loudest of every four moments."""
    return nn.Sequential(
        nn.Conv1d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm1d(channels),
        nn.ReLU(),
        nn.MaxPool1d(4),
    )


class WordRecogniser(nn.Module):
    """Four convolutions, each on a coarser scale of time, and a linear layer on their mean."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.ear = nn.Sequential(
            hearing(1, width, 32, 8),
            hearing(width, 2 * width, 3, 1),
            hearing(2 * width, 4 * width, 3, 1),
            hearing(4 * width, 4 * width, 3, 1),
        )
        self.word = nn.Linear(4 * width, VOICES)

    def forward(self, waves: Tensor) -> Tensor:
        """(batch, 1, samples) to (batch, words)."""
        logits: Tensor = self.word(self.ear(waves).mean(dim=2))
        return logits


def main() -> None:
    """Train with Adam."""
    options = training.read_options(__doc__, batch_size=16, epochs=150, learning_rate=1e-2, samples=5000)
    model = WordRecogniser()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate, weight_decay=1e-4)
    training.train(model, optimizer, Recordings(options.samples), options)


if __name__ == "__main__":
    main()
