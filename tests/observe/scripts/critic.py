"""Two optimizers: the critic steps three times for each step of the generator."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
critic = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
of_generator, of_critic = (torch.optim.Adam(m.parameters()) for m in (generator, critic))
while True:
    for _ in range(3):
        fake = generator(torch.randn(10, 8)).detach()
        of_critic.zero_grad()
        (critic(fake).mean() - critic(torch.randn(10, 16)).mean()).backward()
        of_critic.step()
    of_generator.zero_grad()
    (-critic(generator(torch.randn(10, 8))).mean()).backward()
    of_generator.step()
