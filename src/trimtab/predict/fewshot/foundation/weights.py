"""Fitted predictors as named arrays and a few words beside them, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import (
    CurveModel,
    Curves,
    Fitted,
    FittedCurves,
    FittedLeaves,
    FittedMedianRatio,
    FittedNearestWorkloads,
    FittedOurs,
    FittedScaledProfile,
    Forest,
    MedianRatio,
    NearestWorkloads,
    Stretch,
    TimeMatrix,
)
from trimtab.predict.fewshot.encoder import Encoder

Arrays = dict[str, NDArray[Any]]
Words = dict[str, Any]

_LEAF = 255  # where other nodes have the number of a feature
_MODEL = ("mean", "covariance", "curves", "curve_noise")


def to_weights(fitted: FittedOurs) -> tuple[Arrays, Words]:
    """All that predicting needs; in single precision, which is finer than any measurement."""
    if not any(isinstance(member, FittedCurves) for member in fitted.members):
        raise TypeError("without curves there is nothing to tell what is unlike anything seen")
    arrays: Arrays = {}
    members = list[Words]()
    for number, member in enumerate(fitted.members):
        if isinstance(member, FittedCurves):
            parts, words = _curves_out(member)
        elif isinstance(member, FittedLeaves):
            parts, words = _leaves_out(member)
        elif isinstance(member, Encoder):
            parts, words = {}, {"kind": "encoder"}
        else:
            raise TypeError(f"{type(member).__name__} cannot be kept as weights")
        arrays |= {f"{number}.{name}": _single(array) for name, array in parts.items()}
        members.append(words)
    words = {
        "members": members,
        "shares": list(fitted.shares),
        "caution": fitted.caution,
        "margins": {str(shots): margin for shots, margin in fitted.margins.items()},
        "coverage": fitted.coverage,
        "errors": {who: {str(k): e for k, e in by.items()} for who, by in fitted.errors.items()},
        "environments": sorted(fitted.environments),
    }
    return arrays, words


def from_weights(
    arrays: Mapping[str, NDArray[Any]], words: Words, encoder: Encoder | None = None
) -> FittedOurs:
    """The predictor that `to_weights` took apart; the encoder, which all share, is kept elsewhere."""
    members = list[FittedCurves | FittedLeaves | Encoder]()
    for number, each in enumerate(words["members"]):
        prefix = f"{number}."
        own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        members.append(_member_in(own, each, encoder))
    matrix = next(member.matrix for member in members if isinstance(member, FittedCurves))
    nearest = NearestWorkloads()
    rules: dict[str, Fitted] = {
        MedianRatio().name: FittedMedianRatio(matrix),
        Stretch().name: Stretch(),
        nearest.name: FittedNearestWorkloads(FittedScaledProfile.of(matrix), nearest.neighbours),
    }
    return FittedOurs(
        members=tuple(members),
        shares=tuple(words["shares"]),
        caution=words["caution"],
        margins={int(shots): margin for shots, margin in words["margins"].items()},
        coverage=words["coverage"],
        errors={who: {int(k): e for k, e in by.items()} for who, by in words["errors"].items()},
        environments=frozenset(words["environments"]),
        rules=rules,
    )


def _member_in(
    arrays: Mapping[str, NDArray[Any]], words: Words, encoder: Encoder | None
) -> FittedCurves | FittedLeaves | Encoder:
    if words["kind"] == "encoder":
        if encoder is None:
            raise ValueError("the encoder is not there")
        return encoder
    return _curves_in(arrays, words) if words["kind"] == "curves" else _leaves_in(arrays, words)


def _single(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _double(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)


def _curves_out(member: FittedCurves) -> tuple[Arrays, Words]:
    arrays: Arrays = {name: getattr(member.model, name) for name in _MODEL}
    arrays |= {
        "log_seconds": member.matrix.log_seconds,
        "settings": member.matrix.settings,
        "metrics": member.metrics,
        "metric_scale": member.metric_scale,
    }
    words = {
        "kind": "curves",
        "settings": asdict(member.settings),
        "noise": member.model.noise,
        "configurations": list(member.matrix.column_of),
        "data": list(member.data),
    }
    return arrays, words


def _curves_in(arrays: Mapping[str, NDArray[Any]], words: Words) -> FittedCurves:
    columns = {key: column for column, key in enumerate(words["configurations"])}
    matrix = TimeMatrix(columns, _double(arrays["settings"]), _double(arrays["log_seconds"]))
    model = CurveModel(noise=words["noise"], **{name: _double(arrays[name]) for name in _MODEL})
    return FittedCurves(
        Curves(**words["settings"]),
        matrix,
        model,
        _double(arrays["metrics"]),
        _double(arrays["metric_scale"]),
        tuple(words["data"]),
    )


def _leaves_out(member: FittedLeaves) -> tuple[Arrays, Words]:
    arrays: Arrays = {f"home.{name}": array for name, array in _forest_out(member.at_home).items()}
    arrays |= {f"abroad.{name}": array for name, array in _forest_out(member.abroad).items()}
    words = {"kind": "leaves", "environments": sorted(member.environments), "caution": member.caution}
    return arrays, words


def _leaves_in(arrays: Mapping[str, NDArray[Any]], words: Words) -> FittedLeaves:
    def forest(which: str) -> Forest:
        names = [name for name in arrays if name.startswith(f"{which}.")]
        return _forest_in({name.removeprefix(f"{which}."): arrays[name] for name in names})

    return FittedLeaves(forest("home"), forest("abroad"), frozenset(words["environments"]), words["caution"])


def _forest_out(forest: Forest) -> Arrays:
    """Half of the nodes are leaves: they need only their points. A right child is kept as steps ahead."""
    inner = forest.leaf < 0
    ahead = (forest.right - np.arange(len(inner)))[inner]
    return {
        "roots": forest.roots,
        "feature": np.where(inner, forest.feature, _LEAF).astype(np.uint8),
        "threshold": forest.threshold[inner],
        "ahead": ahead.astype(np.min_scalar_type(int(ahead.max(initial=0)))),
        "points": forest.points,
    }


def _forest_in(arrays: Mapping[str, NDArray[Any]]) -> Forest:
    feature = arrays["feature"]
    inner = feature != _LEAF
    own = np.arange(len(feature), dtype=np.int32)
    threshold, right = np.full(len(feature), -np.inf, dtype=np.float32), own.copy()
    threshold[inner] = arrays["threshold"]
    right[inner] += arrays["ahead"].astype(np.int32)
    leaf = np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32)
    plain = np.where(inner, feature, 0).astype(np.uint8)
    return Forest(arrays["roots"], plain, threshold, right, leaf, arrays["points"])
