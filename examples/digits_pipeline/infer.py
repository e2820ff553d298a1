"""Classifies held-out pictures of digits, and writes the accuracy.

python infer.py --test data/test.npz --model data/model.pt --accuracy data/accuracy.json
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from network import DigitNetwork


def main() -> None:
    """Read, infer, count, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--accuracy", type=Path, required=True)
    args = parser.parse_args()

    with np.load(args.test) as data:
        pictures, digits = torch.from_numpy(data["pictures"]), torch.from_numpy(data["digits"])
    network = DigitNetwork()
    network.load_state_dict(torch.load(args.model, weights_only=True))
    network.eval()
    with torch.inference_mode():
        right = (network(pictures).argmax(1) == digits).float().mean().item()
    args.accuracy.write_text(json.dumps({"accuracy": right, "pictures": len(digits)}) + "\n")
    print(f"accuracy {right:.4f} on {len(digits)} pictures")


if __name__ == "__main__":
    main()
