"""The foundation model: the shared encoder and one predictor per data set, in one file of weights.

The file carries a schema and a checksum, so weights of another version or damaged ones are refused.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError
from trimtab.kernel import write_whole
from trimtab.predict.fewshot.blend import FITTED_MEMBERS, RULES_TO_BEAT, FittedBlend, FittedMember
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Case
from trimtab.predict.fewshot.curves import FittedCurves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions
from trimtab.predict.fewshot.encoder import SHAPES, Encoder
from trimtab.predict.fewshot.forest import FEATURES
from trimtab.predict.fewshot.neighbourhood import SharedEncoder
from trimtab.predict.fewshot.predictor import Arrays, Fitted, Words, under
from trimtab.predict.fewshot.rules import FittedMatrixRule, MatrixRule

SHIPPED = Path(str(files("trimtab.predict") / "data" / "foundation.safetensors"))

_LAYOUT = 3  # of the arrays in the file
_ENCODER = "encoder"  # its place in the file, beside the data sets

# Changes with every column of inputs and outputs, so that old weights are never misread.
SCHEMA = hashlib.sha256(
    json.dumps([_LAYOUT, SETTINGS, METRICS, FEATURES, dict(SHAPES)]).encode()
).hexdigest()[:12]


@dataclass(frozen=True, slots=True, eq=False)
class Foundation:
    """Predictors by data set, and the card that names their origin."""

    predictors: Mapping[str, FittedBlend]
    card: Mapping[str, Any] = field(default_factory=dict)

    def for_environment(self, environment: str) -> tuple[str, FittedBlend]:
        """The data set that has this environment, and its predictor."""
        for name, fitted in self.predictors.items():
            if environment in fitted.environments:
                return name, fitted
        known = ", ".join(sorted(e for fitted in self.predictors.values() for e in fitted.environments))
        raise NotFoundError(f'nothing was learned in an environment called "{environment}", only in {known}')

    @property
    def shared(self) -> SharedEncoder | None:
        return next((fitted.shared for fitted in self.predictors.values() if fitted.shared), None)

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        arrays: dict[str, NDArray[Any]] = {}
        words = {}
        parts = {name: to_weights(fitted) for name, fitted in self.predictors.items()}
        if self.shared:
            parts[_ENCODER] = self.shared.to_weights()
        for name, (own, words[name]) in parts.items():
            arrays |= {f"{name}/{key}": np.ascontiguousarray(array) for key, array in own.items()}
        about = {"schema": SCHEMA, "words": json.dumps(words), "card": json.dumps(self.card)}
        about["checksum"] = _checksum(arrays, about)
        write_whole(path, _safetensors().save(arrays, about))


def load_foundation(path: Path) -> Foundation:
    """Read a file of weights; one that is damaged or of another version is refused."""
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
        words = json.loads(about["words"])
        names = words.pop(_ENCODER, None)
        shared = SharedEncoder.from_weights(under(f"{_ENCODER}/", arrays), names) if names else None
        predictors = {
            name: from_weights(under(f"{name}/", arrays), own, shared) for name, own in words.items()
        }
        if not predictors:
            raise ValueError("no predictor")
        return Foundation(predictors, json.loads(about["card"]))
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
        raise BadInputError(
            f"{path} is damaged: its arrays are not those it describes; restore it or train it again"
        ) from None


def shipped_foundation() -> Foundation:
    return load_foundation(SHIPPED)


def replayed(corpus: str, foundation: Foundation) -> tuple[Case, ...]:
    """The training cases of one data set: the functions from their file, others from the weights themselves.

    Weights do not store applications and environments of cases: there, every case counts as its own
    application, in one environment, which the curves ignore.
    """
    if corpus == "functions":
        return read_functions(BUNDLED_FUNCTIONS).completed().cases
    fitted = foundation.predictors[corpus]
    return fitted.curves.training_cases(corpus, min(fitted.environments))


def to_weights(fitted: FittedBlend) -> tuple[Arrays, Words]:
    """Everything that prediction needs; in single precision, which is finer than any measurement."""
    if not any(isinstance(member, FittedCurves) for member in fitted.members):
        raise TypeError("a blend without curves has no unlikeness, which the guard needs")
    arrays: dict[str, NDArray[Any]] = {}
    members = list[Words]()
    for number, member in enumerate(fitted.members):
        own, words = member.to_weights()
        for name, array in own.items():
            single = array.astype(np.float32) if array.dtype == np.float64 else array
            arrays[f"{number}.{name}"] = single
        members.append({"kind": member.kind, **words})
    words = {
        "members": members,
        "shares": list(fitted.shares),
        "caution": fitted.caution,
        "margins": {str(shots): margin for shots, margin in fitted.margins.items()},
        "coverage": fitted.coverage,
        "errors": {name: {str(k): e for k, e in by.items()} for name, by in fitted.errors.items()},
        "environments": sorted(fitted.environments),
    }
    return arrays, words


def from_weights(arrays: Arrays, words: Words, shared: SharedEncoder | None = None) -> FittedBlend:
    """Inverse of `to_weights`; the encoder, which all data sets share, is stored apart."""
    members = list[FittedMember]()
    for number, own in enumerate(words["members"]):
        if own["kind"] != Encoder.kind:
            members.append(FITTED_MEMBERS[own["kind"]].from_weights(under(f"{number}.", arrays), own))
        elif shared:
            members.append(shared.encoder)
        else:
            raise ValueError("the encoder is not there")
    matrix = next(member.matrix for member in members if isinstance(member, FittedCurves))
    rules: dict[str, Fitted] = {
        rule.name: FittedMatrixRule(rule, matrix) if isinstance(rule, MatrixRule) else rule.fit(())
        for rule in RULES_TO_BEAT
    }
    return FittedBlend(
        members=tuple(members),
        shares=tuple(words["shares"]),
        caution=words["caution"],
        margins={int(shots): margin for shots, margin in words["margins"].items()},
        coverage=words["coverage"],
        errors={name: {int(k): e for k, e in by.items()} for name, by in words["errors"].items()},
        environments=frozenset(words["environments"]),
        rules=rules,
        shared=shared,
    )


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
