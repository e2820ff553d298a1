"""Parts of a long bench that are done, kept on disk until code, data or options change."""

import hashlib
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

_PER_SHOTS = ("application", "case", "predicted", "measured", "low", "high")


@dataclass(frozen=True, slots=True)
class Finished:
    """A folder with a file per finished part, named by what it came from."""

    folder: Path

    @classmethod
    def of(cls, bench: str, options: BenchOptions) -> "Finished":
        """Where this bench, run with this code on this data, keeps what is done."""
        digest = hashlib.sha256(f"{options.quick} {options.seed}".encode())
        for path in sorted(Path(fewshot.__path__[0]).glob("*.py")):
            digest.update(path.read_bytes())
        digest.update(fewshot.BUNDLED_FUNCTIONS.read_bytes())
        for path in sorted(options.data.glob("*/*.gz")) if options.data else []:
            digest.update(f"{path.name} {path.stat().st_size}".encode())
        return cls(home() / "bench" / bench / digest.hexdigest()[:16])

    def load(self, task: Sequence[object]) -> dict[int, Predictions] | None:
        """A part's predictions by known runs; None if it has to be done, or what was kept is damaged."""
        path = self._path(task)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as kept:
                shots = sorted({int(name.partition("/")[0]) for name in kept.files})
                return {k: _predictions({f: kept[f"{k}/{f}"] for f in _PER_SHOTS}) for k in shots}
        except (OSError, ValueError, KeyError):
            return None

    def save(self, task: Sequence[object], found: dict[int, Predictions]) -> None:
        """Keep a part."""
        arrays: dict[str, Any] = {}
        for shots, each in found.items():
            for name in _PER_SHOTS:
                value = getattr(each, name)
                arrays[f"{shots}/{name}"] = np.array([] if value is None else value)
        write_whole(self._path(task), lambda file: np.savez_compressed(file, **arrays))

    def _path(self, task: Sequence[object]) -> Path:
        return self.folder / ("-".join(str(part) for part in task) + ".npz")


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
