"""A compiled model, whose wrapper the script looks into."""

import torch
from torch import nn

model = torch.compile(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)))
assert isinstance(model._orig_mod, nn.Sequential)


@torch.compile
def loss_of(output):
    return output.square().mean()


optimizer = torch.optim.AdamW(model.parameters(), fused=True)
while True:
    loss_of(model(torch.randn(8, 32))).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
