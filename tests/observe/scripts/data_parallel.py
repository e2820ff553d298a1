"""DistributedDataParallel in one process."""

import torch
import torch.distributed
from torch import nn

store = torch.distributed.TCPStore("127.0.0.1", 0, 1, True)
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
