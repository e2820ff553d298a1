"""Trains a residual network on generated pictures of digits: small, but shaped like the real thing.

    python examples/train_digits.py --epochs 90 --batch-size 32
    trimtab profile -- python examples/train_digits.py

Nothing is downloaded: every picture is drawn on demand, from its index alone.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

# Which of the seven strokes (top, two uppers, middle, two lowers, bottom) a digit lights up.
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)


class Digits(Dataset[tuple[Tensor, int]]):
    """Seven-segment digits of random place, size, tint and noise; colour pictures of `size` × `size`."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.size = size

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        random = torch.Generator().manual_seed(index)
        label = index % 10
        scale = int(torch.randint(self.size // 3, self.size // 2, (1,), generator=random))
        canvas = torch.zeros(self.size, self.size)
        top, left = (int(v) for v in torch.randint(0, self.size - scale, (2,), generator=random))
        self._draw(canvas[top : top + scale, left : left + scale // 2 + 2], SEGMENTS[label])
        tint = torch.rand(3, 1, 1, generator=random) * 0.7 + 0.3
        return tint * canvas + 0.2 * torch.randn(3, self.size, self.size, generator=random), label

    @staticmethod
    def _draw(box: Tensor, segments: str) -> None:
        height, width = box.shape
        middle, stroke = height // 2, max(1, height // 10)
        rows = {0: slice(0, stroke), 3: slice(middle, middle + stroke), 6: slice(height - stroke, height)}
        columns = {1: (0, 0), 2: (0, 1), 4: (1, 0), 5: (1, 1)}
        for number, lit in enumerate(segments):
            if lit == "0":
                continue
            if number in rows:
                box[rows[number], :] = 1.0
            else:
                lower, right = columns[number]
                across = slice(width - stroke, width) if right else slice(0, stroke)
                box[middle * lower : middle * (lower + 1), across] = 1.0


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.around = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels_in, h, w) to (batch, channels, h / stride, w / stride)."""
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.around(x))


class ResNet(nn.Module):
    """An 18-layer residual network with a stem for small pictures; `width` channels in the first stage."""

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        stages, channels = [], width
        for stage in range(4):
            out = width * 2**stage
            stages += [Block(channels, out, 1 if stage == 0 else 2), Block(out, out, 1)]
            channels = out
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, h, w) to (batch, classes)."""
        logits: Tensor = self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))
        return logits


def main() -> None:
    """Train, and print the loss and accuracy from time to time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=50_000, help="pictures in the training set")
    parser.add_argument("--size", type=int, default=64, help="width and height of a picture")
    parser.add_argument(
        "--width", type=int, default=32, help="channels of the first stage; 64 is a ResNet-18"
    )
    parser.add_argument("--workers", type=int, default=0, help="processes that draw pictures")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Digits(args.images, args.size),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
    )
    model = ResNet(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    for epoch in range(args.epochs):
        for number, (pictures, labels) in enumerate(loader):
            pictures, labels = pictures.to(device), labels.to(device)
            logits = model(pictures)
            loss = functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 50 == 0:
                accuracy = (logits.argmax(1) == labels).float().mean().item()
                print(
                    f"epoch {epoch} step {number}: loss {loss.item():.3f}, accuracy {accuracy:.2f}",
                    flush=True,
                )
        schedule.step()


if __name__ == "__main__":
    main()
