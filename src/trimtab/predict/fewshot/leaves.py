"""Functions and containers: a forest on what the known runs showed, over the rule from first principles.

An example is (known runs, target configuration); its label is how far, in log seconds, the target's time is
from the rule's answer. Features are ratios and rates, so they mean the same for a long run and a short one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.forest import Forest, ForestSettings
from trimtab.predict.fewshot.predictor import Rows, known_log_seconds, need_cases
from trimtab.predict.fewshot.schema import Array
from trimtab.predict.fewshot.spread import Spread
from trimtab.predict.fewshot.stretch import cpu_share, stretched, stretched_from

_UNKNOWN = -30.0  # to a tree, as good as a branch of its own
_CLIP = 3.0  # log seconds; a label beyond that only disturbs
_SHOTS = (1, 2, 3)
_KEPT = (0.0, 0.0, 0.5, 0.8)  # parts of the metrics that are left, where some are taken away
_MOST_SIZES = 30  # configurations of a case
_LEAST_CPU = 1e-3  # CPU seconds per second
_LEAST_MEMORY = 2.0**24  # bytes

_RATES = ("context_switches", "bytes_read", "bytes_written", "bytes_received", "bytes_sent")
_SHARES = ("seconds_deviation", "seconds_least", "seconds_median", "cpu_waiting", "disk_busy")
# What shows how a platform holds a function back, and means nothing under another platform's law.
_PLATFORM = ("throttled", "involuntary_switches", "probe_seconds")


@dataclass(frozen=True, slots=True)
class Leaves:
    """A forest for the environments that were trained on, and a plainer one for all others."""

    forest: ForestSettings = field(default_factory=ForestSettings)
    sets_per_case: int = 24  # sets of known runs drawn from each training case
    forgetful: int = 8  # sets of which some or all metrics are taken away: users do not always have them
    caution: float = 1.0  # power of 1/y in the point that is answered

    @property
    def name(self) -> str:
        return "leaves"

    def suits(self, cases: Sequence[Case]) -> bool:
        """Made for one thing in several sizes; a catalog of machines has too many corners."""
        runs = [int((~np.isnan(case.seconds)).sum()) for case in cases]
        return bool(np.median([len(case) for case in cases]) <= _MOST_SIZES and max(runs) > 1)

    def fit(self, cases: Sequence[Case]) -> "FittedLeaves":
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
        return FittedLeaves(
            Forest.fit(examples, label, self.forest),
            Forest.fit(examples[:, TRAVELS], label, self.forest),
            frozenset(case.environment for case in cases),
            self.caution,
        )

    def _examples(self, case: Case) -> Iterator[tuple[Case, Rows]]:
        """The case with sets of known runs; then with other sets and less to go by."""
        for known in _known_sets(case, self.sets_per_case, self.forest.seed):
            yield case, known
        random = np.random.default_rng([self.forest.seed, len(case), *case.label.encode()])
        for number, known in enumerate(_known_sets(case, self.forgetful, self.forest.seed + 1)):
            if number < self.forgetful:
                kept = random.random(case.metrics.shape[1]) < random.choice(_KEPT)
                yield replace(case, metrics=np.where(kept, case.metrics, np.nan)), known


@dataclass(frozen=True, slots=True, eq=False)
class FittedLeaves:
    """The two forests."""

    at_home: Forest
    abroad: Forest
    environments: frozenset[str]
    caution: float

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(self.caution))

    def spread(self, case: Case, known: Rows) -> Spread:
        """The leaves' labels around the rule's answer."""
        rule = stretched(case, known)
        rows = features(case, known, rule)
        home = case.environment in self.environments
        samples = self.at_home.samples(rows) if home else self.abroad.samples(rows[:, TRAVELS])
        return Spread.of(rule[:, None] + samples, np.ones_like(samples))


def features(case: Case, known: Rows, rule: Array) -> Array:
    """One row per configuration of the case; columns as in FEATURES."""
    known = np.sort(np.asarray(known))
    log_seconds = np.full(len(case), np.nan)
    log_seconds[known] = known_log_seconds(case, known)
    columns = dict(_columns(case, known, rule, log_seconds))
    table = np.column_stack([columns[name] for name in FEATURES])
    return np.nan_to_num(table, nan=_UNKNOWN, posinf=-_UNKNOWN, neginf=_UNKNOWN)


def _columns(case: Case, known: Rows, rule: Array, log_seconds: Array) -> Iterator[tuple[str, Array]]:
    share = cpu_share(case)
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
    yield "least cpu time", _least(work[known]) - rule
    yield "least time", _least(log_seconds[known] + np.log(case.metric("seconds_least")[known])) - rule
    yield "most memory", _most(resident[known]) - memory
    yield "most switches", ones * _most(_log_rate(case.metric("context_switches"))[known])
    by_size = known[np.argsort(size[known], kind="stable")]
    yield "line", np.interp(size, size[by_size], log_seconds[by_size]) - rule
    order = np.argsort(np.abs(size[known][None] - size[:, None]), axis=1, kind="stable")
    for rank, which in (("nearest", order[:, 0]), ("second", order[:, min(1, len(known) - 1)])):
        row = known[which]
        yield f"{rank} size", size[row]
        yield f"{rank} step", size[row] - size
        yield f"{rank} cpu step", cpus[row] - cpus
        yield f"{rank} time", log_seconds[row] - rule
        yield f"{rank} stretched", _each_stretched(case, row, share) - rule
        yield f"{rank} cpu", np.log(np.maximum(used[row], _LEAST_CPU))
        yield f"{rank} cpu of share", np.log(np.maximum(used[row], _LEAST_CPU) / case.setting("cpus")[row])
        yield f"{rank} user", np.log(np.maximum(case.metric("cpu_user")[row], _LEAST_CPU))
        yield f"{rank} system", case.metric("cpu_system")[row] / np.maximum(used[row], _LEAST_CPU)
        yield f"{rank} memory", resident[row] - memory[row]
        for name in _RATES:
            yield f"{rank} {name}", _log_rate(case.metric(name))[row]
        for name in (*_SHARES, *_PLATFORM):
            yield f"{rank} {name}", case.metric(name)[row]
        held = case.metric("throttled")[row]
        yield f"{rank} idle unless throttled", 1.0 - used[row] - held


def _each_stretched(case: Case, rows: NDArray[np.intp], share: Array) -> Array:
    """Under each configuration, the rule's answer from the one run given for it."""
    if np.isnan(share).any():
        return np.log(case.seconds[rows])
    from_run = {row: stretched_from(case, row, share) for row in set(rows.tolist())}
    return np.array([from_run[row][target] for target, row in enumerate(rows.tolist())])


def _log_rate(values: Array) -> Array:
    return np.log1p(np.maximum(values, 0.0))


def _least(values: Array) -> float:
    return float(np.nanmin(values)) if not np.isnan(values).all() else float("nan")


def _most(values: Array) -> float:
    return float(np.nanmax(values)) if not np.isnan(values).all() else float("nan")


def _known_sets(case: Case, count: int, seed: int) -> Iterator[Rows]:
    """Every single run, and pairs and triples at random up to `count` sets in all."""
    measured = np.flatnonzero(~np.isnan(case.seconds)).tolist()
    for row in measured if len(measured) > 1 else []:
        yield np.array([row])
    several = (
        [chosen for shots in _SHOTS[1:] if len(measured) > shots for chosen in combinations(measured, shots)]
        if len(measured) <= _MOST_SIZES
        else []
    )
    random = np.random.default_rng([seed, *case.label.encode()])
    left = max(0, count - len(measured))
    for index in random.permutation(len(several))[:left].tolist():
        yield np.array(several[index])


def _names() -> tuple[str, ...]:
    ranks = [
        f"{rank} {name}"
        for rank in ("nearest", "second")
        for name in (
            "size", "step", "cpu step", "time", "stretched", "cpu", "cpu of share", "user", "system",
            "memory", *_RATES, *_SHARES, *_PLATFORM, "idle unless throttled",
        )
    ]  # fmt: skip
    return (
        "target memory", "target cpus", "rule", "known runs", "largest known", "smallest known",
        "shortest known", "longest known", "least cpu time", "least time", "most memory", "most switches",
        "line", *ranks,
    )  # fmt: skip


FEATURES = _names()
TRAVELS: NDArray[np.bool_] = np.array(
    [not any(word in name for word in (*_PLATFORM, "throttled")) for name in FEATURES]
)
