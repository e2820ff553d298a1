"""Adapters as PEFT makes them: frozen weights, and small matrices that train."""

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


model = nn.Sequential(Adapted(nn.Linear(64, 64)), nn.ReLU(), Adapted(nn.Linear(64, 64)))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
while True:
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
