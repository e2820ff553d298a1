"""Extremely randomised trees on the residual of the CPU-share rule, for functions and containers.

An example is (known runs, target configuration); its label is the target's log seconds minus the rule's
answer. Features are ratios and rates, so they mean the same for a long run and a short one. A leaf keeps
quantiles of its examples' labels, so the forest predicts a distribution. Fitting takes scikit-learn;
predicting takes NumPy alone and walks all trees at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.predictor import (
    Arrays,
    PredictiveSample,
    Rows,
    Words,
    known_log_seconds,
    need_cases,
    under,
)
from trimtab.predict.fewshot.rules import cpu_share, stretched, stretched_from

_POINTS = 8  # quantiles that stand for a leaf
_LEAF = 255  # in a file, where other nodes have the number of a feature


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """How many trees, and how far they grow."""

    trees: int = 60
    smallest_leaf: int = 6  # examples
    features: float = 0.5  # part of the features looked at for a split
    seed: int = 0


SHIPPED_FOREST = ForestSettings(trees=40, smallest_leaf=12)
"""Fewer and smaller trees than in the bench, so that the file of weights stays small."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All trees' nodes in a row. A node's left child is the next one; a leaf is its own right child."""

    roots: NDArray[np.int32]
    feature: NDArray[np.uint8]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    leaf: NDArray[np.int32]  # the row of `points`, of leaves; -1 of other nodes
    points: NDArray[np.float16]

    @classmethod
    def fit(cls, features: Array, labels: Array, settings: ForestSettings) -> "Forest":
        """From examples, one per row."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise MissingDependencyError(
                "fitting a forest needs scikit-learn; pip install 'trimtab[learn]'"
            ) from None
        rows = features.astype(np.float32)
        grown = ExtraTreesRegressor(
            n_estimators=settings.trees,
            min_samples_leaf=settings.smallest_leaf,
            max_features=settings.features,
            random_state=settings.seed,
        ).fit(rows, labels)
        roots, parts, offset = list[int](), list[dict[str, NDArray[Any]]](), 0
        for tree, reached in zip(grown.estimators_, grown.apply(rows).T, strict=True):
            nodes = tree.tree_
            inner = nodes.children_left >= 0
            parts.append(
                {
                    "feature": np.where(inner, nodes.feature, _LEAF).astype(np.uint8),
                    "threshold": nodes.threshold[inner].astype(np.float32),
                    "ahead": (nodes.children_right - np.arange(nodes.node_count))[inner],
                    "points": _leaf_points(np.flatnonzero(~inner), reached, labels),
                }
            )
            roots.append(offset)
            offset += nodes.node_count
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls.from_weights({"roots": np.array(roots, dtype=np.int32), **joined})

    def samples(self, features: Array) -> Array:
        """For every row of features, the leaves' labels over all trees: equally likely values."""
        rows = features.astype(np.float32)
        node = np.repeat(self.roots[None].astype(np.int64), len(rows), axis=0)
        row = np.arange(len(rows))[:, None]
        while (self.leaf[node] < 0).any():
            goes_left = rows[row, self.feature[node]] <= self.threshold[node]
            inside = self.leaf[node] < 0
            node = np.where(inside & goes_left, node + 1, self.right[node])
        return self.points[self.leaf[node]].reshape(len(rows), -1).astype(np.float64)

    def to_weights(self) -> dict[str, NDArray[Any]]:
        """Arrays of a file: leaves need only their points; a right child is stored as an offset."""
        inner = self.leaf < 0
        ahead = (self.right - np.arange(len(inner)))[inner]
        return {
            "roots": self.roots,
            "feature": np.where(inner, self.feature, _LEAF).astype(np.uint8),
            "threshold": self.threshold[inner],
            "ahead": ahead.astype(np.min_scalar_type(int(ahead.max(initial=0)))),
            "points": self.points,
        }

    @classmethod
    def from_weights(cls, arrays: Arrays) -> "Forest":
        """Inverse of `to_weights`."""
        feature = arrays["feature"]
        inner = feature != _LEAF
        own = np.arange(len(feature), dtype=np.int32)
        threshold, right = np.full(len(feature), -np.inf, dtype=np.float32), own.copy()
        threshold[inner] = arrays["threshold"]
        right[inner] += arrays["ahead"].astype(np.int32)
        leaf = np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32)
        plain = np.where(inner, feature, 0).astype(np.uint8)
        return cls(arrays["roots"], plain, threshold, right, leaf, arrays["points"])


def _leaf_points(leaves: NDArray[np.intp], reached: NDArray[np.intp], labels: Array) -> NDArray[np.float16]:
    """Quantiles of the labels in every leaf."""
    order = np.lexsort((labels, reached))
    ordered, values = reached[order], labels[order]
    first = np.searchsorted(ordered, leaves, side="left")
    count = np.searchsorted(ordered, leaves, side="right") - first
    position = (np.arange(_POINTS) + 0.5) / _POINTS * count[:, None]
    chosen = values[first[:, None] + np.minimum(position.astype(np.intp), count[:, None] - 1)]
    return np.asarray(chosen, dtype=np.float16)


_UNKNOWN = -30.0  # far from all values, so that trees can branch on it
_CLIP = 3.0  # log seconds; larger labels are clipped
_KEPT = (0.0, 0.0, 0.5, 0.8)  # parts of the metrics that are left, where some are removed
_MOST_SIZES = 30  # configurations of a case
_LEAST_CPU = 1e-3  # CPU seconds per second
_LEAST_MEMORY = 2.0**24  # bytes

_RATES = ("context_switches", "bytes_read", "bytes_written", "bytes_received", "bytes_sent")
_SHARES = ("seconds_deviation", "seconds_least", "seconds_median", "cpu_waiting", "disk_busy")
# Metrics of how a platform limits a function, which mean nothing under another platform's law.
_PLATFORM = ("throttled", "involuntary_switches", "probe_seconds")


@dataclass(frozen=True, slots=True)
class ForestPredictor:
    """A forest for the environments that were trained on, and a plainer one for all others."""

    forest: ForestSettings = field(default_factory=ForestSettings)
    sets_per_case: int = 24  # sets of known runs drawn from each training case
    forgetful: int = 8  # sets without some or all metrics: users do not always have them
    caution: float = 1.0  # power of 1/y in the point estimate

    @property
    def name(self) -> str:
        return "leaves"

    def suits(self, cases: Sequence[Case]) -> bool:
        """True for applications measured in several sizes; a catalog of machines has too many dimensions."""
        runs = [int((~np.isnan(case.seconds)).sum()) for case in cases]
        return bool(np.median([len(case) for case in cases]) <= _MOST_SIZES and max(runs) > 1)

    def fit(self, cases: Sequence[Case]) -> "FittedForestPredictor":
        need_cases(cases, self.name)
        rows, labels = list[Array](), list[Array]()
        for case in cases:
            for shown, known in self._examples(case):
                targets = np.setdiff1d(np.flatnonzero(~np.isnan(case.seconds)), known)
                rule = stretched(shown, known)
                rows.append(features(shown, known, rule)[targets])
                labels.append(np.clip(np.log(case.seconds[targets]) - rule[targets], -_CLIP, _CLIP))
        if not rows:
            raise BadInputError(f"{self.name} needs a case with two runs at least to learn from")
        examples, label = np.concatenate(rows), np.concatenate(labels)
        return FittedForestPredictor(
            Forest.fit(examples, label, self.forest),
            Forest.fit(examples[:, TRAVELS], label, self.forest),
            frozenset(case.environment for case in cases),
            self.caution,
        )

    def _examples(self, case: Case) -> Iterator[tuple[Case, Rows]]:
        """The case with sets of known runs; then with other sets and fewer metrics."""
        for known in _known_sets(case, self.sets_per_case, self.forest.seed):
            yield case, known
        random = np.random.default_rng([self.forest.seed, len(case), *case.label.encode()])
        for number, known in enumerate(_known_sets(case, self.forgetful, self.forest.seed + 1)):
            if number < self.forgetful:
                kept = random.random(case.metrics.shape[1]) < random.choice(_KEPT)
                yield replace(case, metrics=np.where(kept, case.metrics, np.nan)), known


@dataclass(frozen=True, slots=True, eq=False)
class FittedForestPredictor:
    """The two forests."""

    at_home: Forest
    abroad: Forest
    environments: frozenset[str]
    caution: float
    kind: ClassVar[str] = "leaves"  # in a file of weights

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(self.caution))

    def spread(self, case: Case, known: Rows) -> PredictiveSample:
        """The leaves' labels around the rule's answer."""
        rule = stretched(case, known)
        rows = features(case, known, rule)
        home = case.environment in self.environments
        samples = self.at_home.samples(rows) if home else self.abroad.samples(rows[:, TRAVELS])
        return PredictiveSample.of(rule[:, None] + samples, np.ones_like(samples))

    def refit(self, cases: Sequence[Case]) -> "FittedForestPredictor":
        settings = replace(SHIPPED_FOREST, trees=len(self.at_home.roots))
        return ForestPredictor(settings, caution=self.caution).fit(cases)

    def to_weights(self) -> tuple[Arrays, Words]:
        forests = {"home": self.at_home, "abroad": self.abroad}
        arrays = {f"{at}.{key}": a for at, part in forests.items() for key, a in part.to_weights().items()}
        return arrays, {"environments": sorted(self.environments), "caution": self.caution}

    @classmethod
    def from_weights(cls, arrays: Arrays, words: Words) -> "FittedForestPredictor":
        home, abroad = (Forest.from_weights(under(f"{at}.", arrays)) for at in ("home", "abroad"))
        return cls(home, abroad, frozenset(words["environments"]), words["caution"])


def features(case: Case, known: Rows, rule: Array) -> Array:
    """One row per configuration of the case; the columns are FEATURES."""
    known = np.sort(np.asarray(known))
    log_seconds = np.full(len(case), np.nan)
    log_seconds[known] = known_log_seconds(case, known)
    columns = dict(_columns(case, known, rule, log_seconds))
    table = np.column_stack([columns[name] for name in FEATURES])
    return np.nan_to_num(table, nan=_UNKNOWN, posinf=-_UNKNOWN, neginf=_UNKNOWN)


def _columns(case: Case, known: Rows, rule: Array, log_seconds: Array) -> Iterator[tuple[str, Array]]:
    share = cpu_share(case)
    # The rule's answer under every configuration from each known run alone.
    alone = {
        row: np.full(len(case), log_seconds[row])
        if np.isnan(share).any()
        else stretched_from(case, row, share)
        for row in known.tolist()
    }
    memory, cpus = np.log2(case.setting("memory_bytes")), np.log2(case.setting("cpus"))
    ones = np.ones(len(case))
    size = np.where(np.isnan(memory), cpus, memory)
    used = case.metric("cpu_user") + case.metric("cpu_system")
    work = np.log(np.maximum(used, _LEAST_CPU)) + log_seconds
    resident = np.log2(np.maximum(case.metric("memory_used"), 0.0) + _LEAST_MEMORY)
    yield "target memory", memory
    yield "target cpus", cpus
    yield "rule", rule
    yield "known runs", ones * len(known)
    yield "largest known", size[known].max() - size
    yield "smallest known", size[known].min() - size
    yield "shortest known", log_seconds[known].min() - rule
    yield "longest known", log_seconds[known].max() - rule
    yield "least cpu time", _extreme(work[known], np.nanmin) - rule
    fastest = log_seconds[known] + np.log(case.metric("seconds_least")[known])
    yield "least time", _extreme(fastest, np.nanmin) - rule
    yield "most memory", _extreme(resident[known], np.nanmax) - memory
    yield "most switches", ones * _extreme(_log_rate(case.metric("context_switches"))[known], np.nanmax)
    by_size = known[np.argsort(size[known], kind="stable")]
    yield "line", np.interp(size, size[by_size], log_seconds[by_size]) - rule
    order = np.argsort(np.abs(size[known][None] - size[:, None]), axis=1, kind="stable")
    for rank, which in (("nearest", order[:, 0]), ("second", order[:, min(1, len(known) - 1)])):
        row = known[which]
        yield f"{rank} size", size[row]
        yield f"{rank} step", size[row] - size
        yield f"{rank} cpu step", cpus[row] - cpus
        yield f"{rank} time", log_seconds[row] - rule
        yield (
            f"{rank} stretched",
            np.array([alone[r][target] for target, r in enumerate(row.tolist())]) - rule,
        )
        yield f"{rank} cpu", np.log(np.maximum(used[row], _LEAST_CPU))
        yield f"{rank} cpu of share", np.log(np.maximum(used[row], _LEAST_CPU) / case.setting("cpus")[row])
        yield f"{rank} user", np.log(np.maximum(case.metric("cpu_user")[row], _LEAST_CPU))
        yield f"{rank} system", case.metric("cpu_system")[row] / np.maximum(used[row], _LEAST_CPU)
        yield f"{rank} memory", resident[row] - memory[row]
        for name in _RATES:
            yield f"{rank} {name}", _log_rate(case.metric(name))[row]
        for name in (*_SHARES, *_PLATFORM):
            yield f"{rank} {name}", case.metric(name)[row]
        yield f"{rank} idle unless throttled", 1.0 - used[row] - case.metric("throttled")[row]


def _log_rate(values: Array) -> Array:
    return np.log1p(np.maximum(values, 0.0))


def _extreme(values: Array, pick: Callable[[Array], Any]) -> float:
    """`np.nanmin` or `np.nanmax`; NaN where nothing is known."""
    return float(pick(values)) if not np.isnan(values).all() else float("nan")


def _known_sets(case: Case, count: int, seed: int) -> Iterator[Rows]:
    """Every single run, and pairs and triples at random up to `count` sets in all."""
    measured = np.flatnonzero(~np.isnan(case.seconds)).tolist()
    for row in measured if len(measured) > 1 else []:
        yield np.array([row])
    several = (
        [chosen for shots in (2, 3) if len(measured) > shots for chosen in combinations(measured, shots)]
        if len(measured) <= _MOST_SIZES
        else []
    )
    random = np.random.default_rng([seed, *case.label.encode()])
    left = max(0, count - len(measured))
    for index in random.permutation(len(several))[:left].tolist():
        yield np.array(several[index])


_BY_RANK = (
    "size", "step", "cpu step", "time", "stretched", "cpu", "cpu of share", "user", "system", "memory",
    *_RATES, *_SHARES, *_PLATFORM, "idle unless throttled",
)  # fmt: skip
FEATURES: tuple[str, ...] = (
    "target memory", "target cpus", "rule", "known runs", "largest known", "smallest known", "shortest known",
    "longest known", "least cpu time", "least time", "most memory", "most switches", "line",
    *(f"{rank} {name}" for rank in ("nearest", "second") for name in _BY_RANK),
)  # fmt: skip
TRAVELS: NDArray[np.bool_] = np.array(
    [not any(word in name for word in (*_PLATFORM, "throttled")) for name in FEATURES]
)
