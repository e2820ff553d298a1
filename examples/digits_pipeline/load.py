"""Loads pictures of handwritten digits (scikit-learn's own, no download) and writes them unchanged.

python load.py --output data/raw.npz
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    """1,797 pictures as vectors of 64 numbers from 0 to 16, each in a row of its own, and their digits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    pictures, digits = load_digits(return_X_y=True)
    with args.output.open("wb") as file:
        np.savez(file, pictures=pictures[:, np.newaxis, :], digits=digits)
    print(f"{len(digits)} pictures")


if __name__ == "__main__":
    main()
