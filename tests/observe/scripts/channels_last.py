"""Convolutions, some of them grouped, with channels last."""

import torch
from torch import nn

layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
layers += [nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1)]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
while True:
    x = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    nn.functional.cross_entropy(model(x), torch.zeros(4, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
