"""The file of weights: the shared encoder and one predictor per data set, with schema and checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError
from trimtab.kernel import write_whole
from trimtab.predict.fewshot import FEATURES, METRICS, SETTINGS, FittedOurs
from trimtab.predict.fewshot.encoder import SHAPES, Shared
from trimtab.predict.fewshot.foundation.acquainted import Acquainted
from trimtab.predict.fewshot.foundation.weights import Arrays, from_weights, to_weights

SHIPPED = Path(str(files("trimtab.predict") / "data" / "foundation.safetensors"))

_LAYOUT = 3  # of the arrays in the file
_ENCODER = "encoder"  # its place in the file, beside the data sets

# Changes whenever a column of what goes in or comes out does, so that old weights are never misread.
SCHEMA = hashlib.sha256(
    json.dumps([_LAYOUT, SETTINGS, METRICS, FEATURES, dict(SHAPES)]).encode()
).hexdigest()[:12]


@dataclass(frozen=True, slots=True, eq=False)
class Foundation:
    """Predictors by data set, and the card that says what they come from."""

    predictors: Mapping[str, FittedOurs]
    card: Mapping[str, Any] = field(default_factory=dict)

    def for_environment(self, environment: str) -> tuple[str, FittedOurs]:
        """The data set that has this environment, and its predictor."""
        for name, fitted in self.predictors.items():
            if environment in fitted.environments:
                return name, fitted
        known = ", ".join(sorted(e for fitted in self.predictors.values() for e in fitted.environments))
        raise NotFoundError(f'nothing was learned in an environment called "{environment}", only in {known}')

    @property
    def shared(self) -> Shared | None:
        """The encoder, where one of the predictors knows it."""
        known = (fitted.shared for fitted in self.predictors.values() if isinstance(fitted, Acquainted))
        return next((each for each in known if each), None)

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        arrays: Arrays = {}
        words = {}
        parts = {name: to_weights(fitted) for name, fitted in self.predictors.items()}
        if self.shared:
            parts[_ENCODER] = self.shared.arrays(), self.shared.words()
        for name, (own, words[name]) in parts.items():
            arrays |= {f"{name}/{key}": np.ascontiguousarray(array) for key, array in own.items()}
        about = {"schema": SCHEMA, "words": json.dumps(words), "card": json.dumps(self.card)}
        about["checksum"] = _checksum(arrays, about)
        write_whole(path, _safetensors().save(arrays, about))


def load_foundation(path: Path) -> Foundation:
    """Read a file of weights; one that is damaged or of another version is refused in a sentence."""
    numpy_side = _safetensors()
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise NotFoundError(f"there are no weights at {path}; trimtab models pretrain makes them")
    try:
        with safe_open(path, "numpy") as opened:
            about = opened.metadata() or {}
        arrays = numpy_side.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path} is not a file of weights, or it is damaged ({error})") from None
    if about.get("schema") != SCHEMA:
        raise BadInputError(
            f"{path} was trained under another schema ({about.get('schema', 'none')}, this version reads "
            f"{SCHEMA}); train it again with trimtab models pretrain"
        )
    if about.get("checksum") != _checksum(arrays, about):
        raise BadInputError(f"{path} is damaged: its checksum does not fit; restore it or train it again")
    try:
        return _assembled(arrays, about)
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
        raise BadInputError(
            f"{path} is damaged: its arrays are not those it describes; restore it or train it again"
        ) from None


def shipped_foundation() -> Foundation:
    """The weights that came with this version."""
    return load_foundation(SHIPPED)


def _assembled(arrays: Arrays, about: Mapping[str, str]) -> Foundation:
    words = json.loads(about["words"])
    told = words.pop(_ENCODER, None)
    shared = Shared.put_together(_under(_ENCODER, arrays), told) if told else None
    predictors = {
        name: Acquainted.of(
            from_weights(_under(name, arrays), own, shared.encoder if shared else None), shared
        )
        for name, own in words.items()
    }
    if not predictors:
        raise ValueError("no predictor")
    return Foundation(predictors, json.loads(about["card"]))


def _under(name: str, arrays: Arrays) -> Arrays:
    """The arrays of one part of the file."""
    return {key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")}


def _checksum(arrays: Arrays, about: Mapping[str, str]) -> str:
    """Over everything in the file."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    shapes = {name: [str(array.dtype), array.shape] for name, array in sorted(arrays.items())}
    digest.update(json.dumps([shapes, about.get("words"), about.get("card")]).encode())
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise MissingDependencyError("weights need safetensors; pip install safetensors") from None
    return safetensors.numpy
