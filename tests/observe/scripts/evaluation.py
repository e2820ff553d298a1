"""Evaluation before training and after every few steps, without no_grad in the first."""

import time

import torch
from torch import nn

model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.eval()
model(torch.randn(100, 32))
number = 0
while True:
    model.train()
    for _ in range(3):
        loss = model(torch.randn(8, 32)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        number += 1
    model.eval()
    with torch.no_grad():
        model(torch.randn(100, 32))
        time.sleep(0.3)
