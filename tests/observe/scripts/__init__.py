"""Training scripts for the tests, each as short as its shape allows; and a machine without control groups."""

from trimtab.kernel import NoGroupError

PLAIN = """
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
data = TensorDataset(torch.randn(4000, 32), torch.randint(0, 4, (4000,)))
loader = DataLoader(data, batch_size=16, num_workers=args.workers, drop_last=True)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
number = 0
for epoch in range(100000):
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        number += 1
        if number % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

ADVERSARIAL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
critic = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
of_generator, of_critic = (torch.optim.Adam(m.parameters()) for m in (generator, critic))
while True:
    for (real,) in DataLoader(TensorDataset(torch.randn(1000, 16)), batch_size=10):
        fake = generator(torch.randn(10, 8))
        of_critic.zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()
"""

DISTRIBUTED = """
import torch, torch.distributed
from torch import nn
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(20, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(6, 20)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

# Sequence first, keyword inputs, a dictionary with the loss first as output, bf16, torch.func now and then.
UNUSUAL = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 8)
        self.out = nn.Linear(8, 2)
    def forward(self, tokens=None):
        logits = self.out(self.rnn(tokens)[0])
        return {"loss": logits.float().sum(), "logits": logits}
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens=torch.randn(35, 5, 8))["loss"].backward()
    torch.func.grad(lambda x: (x * x).sum())(torch.ones(3))
    optimizer.step()
    optimizer.zero_grad()
"""


class NoGroups:
    """Stands for `Group` on a machine without control groups."""

    @staticmethod
    def create() -> None:
        raise NoGroupError("there are none in this test")
