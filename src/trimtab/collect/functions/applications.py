"""Applications drawn at random from segments of work; equal seeds draw equal applications."""

import hashlib
import io
import json
import math
import os
import random
import re
import sqlite3
import time
import urllib.request
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Inputs = dict[str, int]
Run = Callable[[], object]

_WORDS = (
    *("node", "train", "batch", "shard", "queue", "tensor", "replica", "epoch"),
    *("quota", "cache", "layer", "price", "core", "link", "byte", "slot"),
)


@dataclass(slots=True)
class Surroundings:
    """Means of a segment: a folder of its own, a server's address, and counters of its traffic."""

    folder: Path
    server: str
    received: int = 0  # bytes
    sent: int = 0  # bytes
    chance: random.Random = field(default_factory=random.Random)

    def own(self, name: str) -> Path:
        """A file of this process alone: a function runs at several sizes at the same time."""
        return self.folder / f"{name}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class SegmentKind:
    """A kind of work: the ranges of its inputs, and a function that prepares it."""

    ranges: dict[str, tuple[int, int]]
    prepare: Callable[[Inputs, Surroundings], Run]

    def draw(self, source: random.Random) -> Inputs:
        """Inputs at random, evenly over the orders of magnitude of each range."""
        return {
            name: round(math.exp(source.uniform(math.log(low), math.log(high + 0.49))))
            for name, (low, high) in self.ranges.items()
        }


SEGMENTS: dict[str, SegmentKind] = {}


def _segment(name: str, **ranges: tuple[int, int]) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    def register(prepare: Callable[..., Run]) -> Callable[..., Run]:
        SEGMENTS[name] = SegmentKind(ranges, prepare)
        return prepare

    return register


@_segment("floating-point", operations=(40_000, 600_000))
def _floating_point(inputs: Inputs, place: Surroundings) -> Run:
    def run() -> float:
        total = 0.0
        for number in range(inputs["operations"]):
            total += math.sqrt(number) * 0.5
        return total

    return run


@_segment("matrix-product", side=(100, 500), times=(1, 8))
def _matrix_product(inputs: Inputs, place: Surroundings) -> Run:
    import numpy as np

    side = inputs["side"]
    left = np.random.default_rng(side).random((side, side))

    def run() -> Any:
        product = left
        for _ in range(inputs["times"]):
            product = product @ left / side
        return product

    return run


@_segment("image", side=(200, 1600))
def _image(inputs: Inputs, place: Surroundings) -> Run:
    import numpy as np
    from PIL import Image

    side = inputs["side"]
    picture = Image.fromarray(np.random.default_rng(side).integers(0, 255, (side, side, 3), dtype="uint8"))

    def run() -> Any:
        smaller = picture.resize((side // 2, side // 2), Image.Resampling.LANCZOS)
        return smaller.rotate(30, Image.Resampling.BICUBIC)

    return run


@_segment("compress", size=(60_000, 2_000_000), threads=(1, 2))
def _compress(inputs: Inputs, place: Surroundings) -> Run:
    text = _text(inputs["size"], place.chance)
    return _spread([text] * 2, lambda part: zlib.compress(part, 6), inputs["threads"])


@_segment("decompress", size=(500_000, 120_000_000))
def _decompress(inputs: Inputs, place: Surroundings) -> Run:
    packed = zlib.compress(_text(inputs["size"], place.chance), 6)
    return lambda: zlib.decompress(packed)


@_segment("json-to-yaml", records=(8, 250))
def _json_to_yaml(inputs: Inputs, place: Surroundings) -> Run:
    import yaml

    source = place.chance
    records = [
        {"name": source.choice(_WORDS), "size": source.random(), "tags": source.choices(_WORDS, k=4)}
        for _ in range(inputs["records"])
    ]
    text = json.dumps(records)
    return lambda: yaml.safe_dump(json.loads(text))


@_segment("text-search", size=(200_000, 4_000_000))
def _text_search(inputs: Inputs, place: Surroundings) -> Run:
    text = _text(inputs["size"], place.chance).decode()
    pattern = re.compile(r"\b(tensor|quota) (\w+) cache\b")
    return lambda: len(pattern.findall(text))


@_segment("hash-and-encrypt", size=(1_000_000, 24_000_000), threads=(1, 2))
def _hash_and_encrypt(inputs: Inputs, place: Surroundings) -> Run:
    import numpy as np

    message = place.chance.randbytes(inputs["size"] // 2)

    def encrypt(part: bytes) -> bytes:
        """A stream cipher: the message under the keystream of an extendable hash, and its digest."""
        keystream = np.frombuffer(hashlib.shake_128(b"key").digest(len(part)), dtype="uint8")
        hidden = np.bitwise_xor(np.frombuffer(part, dtype="uint8"), keystream).tobytes()
        return hashlib.sha256(hidden).digest()

    return _spread([message] * 2, encrypt, inputs["threads"])


@_segment("file-read", size=(500_000, 80_000_000))
def _file_read(inputs: Inputs, place: Surroundings) -> Run:
    path = place.folder / f"read-{place.chance.getrandbits(48):x}"
    path.write_bytes(place.chance.randbytes(inputs["size"]))

    def run() -> int:
        total = 0
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(65536):
                total = zlib.adler32(chunk, total)
        return total

    return run


@_segment("file-write", size=(500_000, 100_000_000))
def _file_write(inputs: Inputs, place: Surroundings) -> Run:
    chunk = place.chance.randbytes(65536)

    def run() -> None:
        path = place.own("written")
        with open(path, "wb", buffering=0) as file:
            for _ in range(0, inputs["size"], len(chunk)):
                file.write(chunk)
        path.unlink()

    return run


@_segment("key-value-store", records=(60, 5000))
def _key_value_store(inputs: Inputs, place: Surroundings) -> Run:
    keys = [f"{number:08x}" for number in range(inputs["records"])]

    def run() -> int:
        connection = sqlite3.connect(place.own("store"))
        try:
            connection.execute("PRAGMA journal_mode=MEMORY")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("CREATE TABLE IF NOT EXISTS store (key TEXT PRIMARY KEY, value BLOB)")
            with connection:
                for key in keys:
                    connection.execute("INSERT OR REPLACE INTO store VALUES (?, ?)", (key, b"v" * 200))
            return sum(
                len(connection.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()[0])
                for key in keys
            )
        finally:
            connection.close()

    return run


@_segment("http-call", calls=(1, 6), size=(1_000, 400_000), milliseconds=(1, 25))
def _http_call(inputs: Inputs, place: Surroundings) -> Run:
    url = f"{place.server}/call?size={inputs['size']}&milliseconds={inputs['milliseconds']}"

    def run() -> None:
        for _ in range(inputs["calls"]):
            with urllib.request.urlopen(url, timeout=30) as answer:  # nosec B310 # our own server
                place.received += len(answer.read())
            place.sent += len(url)

    return run


@_segment("sleep", milliseconds=(5, 150))
def _sleep(inputs: Inputs, place: Surroundings) -> Run:
    return lambda: time.sleep(inputs["milliseconds"] / 1000)


@_segment("model-inference", side=(32, 224), channels=(8, 64))
def _model_inference(inputs: Inputs, place: Surroundings) -> Run:
    import torch

    torch.set_num_threads(1)
    side, channels = inputs["side"], inputs["channels"]
    torch.manual_seed(side)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, channels, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, channels, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, channels * 2, 3, stride=2, padding=1),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(channels * 2, 100),
    ).eval()
    picture = torch.rand(1, 3, side, side)

    def run() -> Any:
        with torch.inference_mode():
            return model(picture).argmax()

    return run


@_segment("stream", chunks=(4, 40), size=(16_000, 256_000), milliseconds=(1, 4))
def _stream(inputs: Inputs, place: Surroundings) -> Run:
    url = "{}/stream?chunks={chunks}&size={size}&milliseconds={milliseconds}".format(place.server, **inputs)

    def run() -> str:
        digest = hashlib.sha256()
        with urllib.request.urlopen(url, timeout=30) as answer:  # nosec B310 # our own server
            while chunk := answer.read(inputs["size"]):
                place.received += len(chunk)
                digest.update(chunk)
        return digest.hexdigest()

    return run


@_segment("sort", numbers=(15_000, 300_000))
def _sort(inputs: Inputs, place: Surroundings) -> Run:
    numbers = [place.chance.random() for _ in range(inputs["numbers"])]
    return lambda: sorted(numbers)[0]


def _text(size: int, source: random.Random) -> bytes:
    """Words at random, `size` bytes of them."""
    line = io.StringIO()
    while line.tell() < 20_000:
        line.write(source.choice(_WORDS))
        line.write(f" {source.randrange(1000)} " if source.random() < 0.2 else " ")
    block = line.getvalue().encode()
    return (block * (size // len(block) + 1))[:size]


def _spread(parts: list[bytes], work: Callable[[bytes], bytes], threads: int) -> Run:
    """Run `work` on the parts in turn, or in threads: it releases the interpreter's lock."""
    if threads == 1:
        return lambda: [work(part) for part in parts]

    def run() -> list[bytes]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, parts))

    return run


_MOST_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of an application: a kind of work and its own inputs."""

    kind: str
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Application:
    """A function made of segments that run one after the other."""

    name: str
    segments: tuple[Segment, ...]

    def prepare(self, place: Surroundings) -> Run:
        """Prepare the inputs; the result runs one invocation."""
        place.chance.seed(self.name)
        runs = [SEGMENTS[segment.kind].prepare(segment.inputs, place) for segment in self.segments]

        def invoke() -> None:
            for run in runs:
                run()

        return invoke


def draw_application(index: int, seed: int = 0) -> Application:
    """The application with that number: one to four segments, drawn with replacement as in FLASH (A.3)."""
    source = random.Random(f"{seed}/{index}")
    kinds = source.choices(sorted(SEGMENTS), k=source.randint(1, _MOST_SEGMENTS))
    segments = tuple(Segment(kind, SEGMENTS[kind].draw(source)) for kind in kinds)
    return Application(f"f{seed}-{index:04d}", segments)
