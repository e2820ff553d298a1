"""Parts of a long bench that are done, kept on disk until code, data or options change."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.bench.options import BenchOptions
from trimtab.core import home
from trimtab.kernel import write_whole
from trimtab.predict import fewshot
from trimtab.predict.fewshot import Predictions

_CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of a file
_PER_SHOTS = ("application", "case", "predicted", "measured", "low", "high")


@dataclass(frozen=True, slots=True)
class Finished:
    """A folder with a file per finished part, named by what it came from."""

    folder: Path

    @classmethod
    def of(cls, bench: str, options: BenchOptions, data: Sequence[Path]) -> "Finished":
        """Where this bench, run with this code on this data, keeps what is done."""
        digest = hashlib.sha256(f"{options.quick} {options.seed}".encode())
        for path in sorted(Path(fewshot.__path__[0]).glob("*.py")):
            digest.update(path.read_bytes())
        for folder in sorted(data, key=lambda folder: folder.name):  # wherever they lie
            for path in sorted(path for path in folder.iterdir() if path.is_file()):
                digest.update(path.name.encode())
                digest.update(path.read_bytes())
        return cls(home() / "bench" / bench / digest.hexdigest()[:16])

    def load(self, task: Sequence[object], method: object) -> dict[int, Predictions] | None:
        """A part's predictions by known runs; None if it has to be done, or what was kept is damaged."""
        path = self._path(task, method)
        content = path.read_bytes() if path.exists() else b""
        archive, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
        if hashlib.sha256(archive).digest() != checksum:
            return None
        with np.load(io.BytesIO(archive), allow_pickle=False) as kept:
            shots = sorted({int(name.partition("/")[0]) for name in kept.files})
            return {k: _predictions({f: kept[f"{k}/{f}"] for f in _PER_SHOTS}) for k in shots}

    def save(self, task: Sequence[object], method: object, found: dict[int, Predictions]) -> None:
        """Keep a part, done by a method with these settings."""
        arrays: dict[str, Any] = {}
        for shots, each in found.items():
            for name in _PER_SHOTS:
                value = getattr(each, name)
                arrays[f"{shots}/{name}"] = np.array([] if value is None else value)
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        content = archive.getvalue()
        write_whole(self._path(task, method), content + hashlib.sha256(content).digest())

    def _path(self, task: Sequence[object], method: object) -> Path:
        settings = hashlib.sha256(repr(method).encode()).hexdigest()[:8]
        return self.folder / ("-".join([*map(str, task), settings]) + ".npz")


def _predictions(fields: dict[str, np.ndarray]) -> Predictions:
    ranged = fields["low"].size > 0
    return Predictions(
        application=fields["application"].tolist(),
        case=fields["case"].tolist(),
        predicted=fields["predicted"],
        measured=fields["measured"],
        low=fields["low"] if ranged else None,
        high=fields["high"] if ranged else None,
    )
