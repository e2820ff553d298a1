"""A graph network in batches of graphs: messages are gathered from nodes and added up at their neighbours."""

import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(graphs):
    return torch.randn(len(graphs) * 10, 8), torch.randint(0, len(graphs) * 10, (2, len(graphs) * 40))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.out = nn.Linear(8, 32), nn.Linear(32, 2)

    def forward(self, nodes, edges):
        messages = self.message(nodes).relu()[edges[0]]
        gathered = torch.zeros(len(nodes), 32).index_add(0, edges[1], messages)
        return self.out(gathered)


model = Network()
optimizer = torch.optim.Adam(model.parameters())
while True:
    for nodes, edges in DataLoader(list(range(400)), batch_size=5, collate_fn=collate):
        model(nodes, edges).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
