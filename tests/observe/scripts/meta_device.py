"""A model on the meta device."""

import torch
from torch import nn

with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4096, 40960), nn.ReLU(), nn.Linear(40960, 4096))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.empty(64, 4096, device="meta")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
