"""Reshapes vectors to square pictures, scales them to 0..1, and splits them 9:1 for training and testing.

python preprocess.py --raw data/raw.npz --train data/train.npz --test data/test.npz
"""

import argparse
from pathlib import Path

import numpy as np

BRIGHTEST = 16.0  # of this data set; 255 where a picture has a byte per pixel
SIZE = 28  # pixels of a side, as in the well-known larger set


def square(vectors: np.ndarray) -> np.ndarray:
    """(n, 1, side²) to (n, 1, SIZE, SIZE): the extra axis dropped, reshaped, and made larger."""
    vectors = vectors.squeeze(axis=1)
    side = int(np.sqrt(vectors.shape[1]))
    pictures = vectors.reshape(-1, side, side) / BRIGHTEST
    nearest = np.arange(SIZE) * side // SIZE
    return pictures[:, nearest][:, :, nearest][:, np.newaxis].astype(np.float32)


def main() -> None:
    """Read, reshape, scale, split, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    args = parser.parse_args()

    with np.load(args.raw) as raw:
        pictures, digits = square(raw["pictures"]), raw["digits"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(digits))
    cut = len(digits) * 9 // 10
    for path, chosen in ((args.train, order[:cut]), (args.test, order[cut:])):
        with path.open("wb") as file:
            np.savez(file, pictures=pictures[chosen], digits=digits[chosen])
    print(f"{cut} to train, {len(digits) - cut} to test")


if __name__ == "__main__":
    main()
