"""A recurrent language model."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.recurrent = nn.LSTM(16, 32, 2, batch_first=True)
        self.out = nn.Linear(32, 50)

    def forward(self, tokens):
        return self.out(self.recurrent(self.embedding(tokens))[0])


model = Model()
optimizer = torch.optim.Adam(model.parameters())
while True:
    tokens = torch.randint(0, 50, (6, 20))
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
