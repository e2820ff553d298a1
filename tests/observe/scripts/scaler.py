"""A gradient scaler that skips its first two steps because gradients overflow."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cpu")
number = 0
while True:
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(8, 32)).float().square().mean()
    scaler.scale(loss * (float("inf") if number < 2 else 1.0)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    number += 1
