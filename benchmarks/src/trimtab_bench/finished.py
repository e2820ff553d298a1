"""The few-shot bench's finished parts: predictions by known runs, kept as arrays."""

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import trimtab.predict
from trimtab_bench.fewshot_protocol import ScoredPredictions
from trimtab_bench.harness import BenchOptions, Kept

_PREDICT = Path(trimtab.predict.__path__[0])
_PER_SHOTS = ("application", "case", "predicted", "measured", "low", "high")


@dataclass(frozen=True, slots=True)
class Finished:
    """What is done of a bench, run with this code on this data."""

    kept: Kept

    @classmethod
    def of(cls, bench: str, options: BenchOptions, data: Sequence[Path]) -> "Finished":
        """Where this bench keeps what is done."""
        return cls(Kept.of(bench, _made_from(options, data)))

    @property
    def folder(self) -> Path:
        """Where that is."""
        return self.kept.folder

    def load(self, task: Sequence[object], method: object) -> dict[int, ScoredPredictions] | None:
        """A part's predictions by known runs; None if it has to be done, or what was kept is damaged."""
        archive = self.kept.load(_name(task, method))
        if archive is None:
            return None
        with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
            shots = sorted({int(name.partition("/")[0]) for name in arrays.files})
            return {k: _predictions({f: arrays[f"{k}/{f}"] for f in _PER_SHOTS}) for k in shots}

    def save(self, task: Sequence[object], method: object, found: dict[int, ScoredPredictions]) -> None:
        """Keep a part, done by a method with these settings."""
        arrays: dict[str, Any] = {}
        for shots, each in found.items():
            for name in _PER_SHOTS:
                value = getattr(each, name)
                arrays[f"{shots}/{name}"] = np.array([] if value is None else value)
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        self.kept.save(_name(task, method), archive.getvalue())


def _made_from(options: BenchOptions, data: Sequence[Path]) -> Iterator[bytes]:
    yield f"{options.quick} {options.seed}".encode()
    own = Path(__file__).parent
    for path in sorted([*_PREDICT.glob("*.py"), *_PREDICT.glob("fewshot/*.py"), *own.glob("fewshot*.py")]):
        yield path.read_bytes()
    for folder in sorted(data, key=lambda folder: folder.name):  # wherever they lie
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            yield path.name.encode()
            yield path.read_bytes()


def _name(task: Sequence[object], method: object) -> str:
    settings = hashlib.sha256(repr(method).encode()).hexdigest()[:8]
    return "-".join([*map(str, task), settings]) + ".npz"


def _predictions(fields: dict[str, np.ndarray]) -> ScoredPredictions:
    ranged = fields["low"].size > 0
    return ScoredPredictions(
        application=fields["application"].tolist(),
        case=fields["case"].tolist(),
        predicted=fields["predicted"],
        measured=fields["measured"],
        low=fields["low"] if ranged else None,
        high=fields["high"] if ranged else None,
    )
