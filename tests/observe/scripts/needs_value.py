"""Control flow that depends on the model's output."""

import torch
from torch import nn

model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    output = model(torch.randn(4, 8))
    if output.mean() > 0:
        output = model(output)
    output.sum().backward()
    optimizer.step()
