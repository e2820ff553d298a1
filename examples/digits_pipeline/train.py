"""Trains the digits network on the CPU.

python train.py --train data/train.npz --model data/model.pt --epochs 25
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from network import DigitNetwork
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Read, train, write the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(0)
    with np.load(args.train) as data:
        examples = TensorDataset(torch.from_numpy(data["pictures"]), torch.from_numpy(data["digits"]))
    loader = DataLoader(examples, batch_size=args.batch_size, shuffle=True)
    network = DigitNetwork()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, digits in loader:
            optimizer.zero_grad()
            loss = loss_of(network.logits(pictures), digits)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}", flush=True)
    torch.save(network.state_dict(), args.model)


if __name__ == "__main__":
    main()
