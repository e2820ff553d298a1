"""A loop of its own: parameters without a module, logging, and an optimizer that never steps."""

import torch

weight = torch.nn.Parameter(torch.randn(32, 4))
bias = torch.nn.Parameter(torch.zeros(4))
unused = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
optimizer = torch.optim.RMSprop([weight, bias], lr=0.01)
history = []
while True:
    loss = (torch.randn(8, 32) @ weight + bias).square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([weight, bias], 1.0)
    optimizer.step()
    history.append(loss.item())
