"""Trimtab's predictor: a blend of curves and forest, calibrated on held-out training applications.

The share of each member, the caution of the answer and the width of its interval are decided on training
applications alone: some are held out at a time, predicted by members fitted to the others, and compared with
the measurements. The rules go through the same backtest, whose errors the guard reads.

`RULES` and `MEMBERS` are the registry: a new predictor is one class with one line there. The bench runs it,
and `trimtab models pretrain` fits it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Protocol

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.curves import Curves, FittedCurves
from trimtab.predict.fewshot.forest import FittedForestPredictor, ForestPredictor
from trimtab.predict.fewshot.neighbourhood import SharedEncoder, Similarity
from trimtab.predict.fewshot.predictor import (
    Arrays,
    Fitted,
    PredictiveSample,
    Predictor,
    Rows,
    Words,
    need_cases,
)
from trimtab.predict.fewshot.rules import (
    MEDIAN_RATIO,
    NEAREST_WORKLOADS,
    SCALED_PROFILE,
    Interpolation,
    MeanOfKnown,
    NearestKnown,
    Stretch,
)
from trimtab.predict.interval import conformal_margin

TRIMTAB = "trimtab"
SHOTS = (1, 2, 3)  # known runs that predictors are tested with
_CAUTIONS = (0.5, 0.75, 1.0)
_ABROAD = 0.25  # log seconds, added on either side in an environment that was not trained on
_FEW = 12  # applications
_STEP = 0.25  # between two blends that are compared
_WIDEST = 3.0  # log seconds; with too few applications to calibrate on, a range is this wide


class FittedMember(Fitted, Protocol):
    """A predictor of distributions that can be stored in a file of weights."""

    kind: ClassVar[str]  # in a file of weights

    def refit(self, cases: Sequence[Case]) -> "FittedMember": ...

    def to_weights(self) -> tuple[Arrays, Words]: ...

    def spread(self, case: Case, known: Rows) -> PredictiveSample: ...


class BlendMember(Protocol):
    """A predictor that can be blended."""

    @property
    def name(self) -> str: ...

    def suits(self, cases: Sequence[Case]) -> bool: ...

    def fit(self, cases: Sequence[Case]) -> FittedMember: ...


# The registry of predictors, by the name that the bench gives them.
RULES: Mapping[str, Predictor] = {
    "nearest": NearestKnown(),
    "interpolation": Interpolation(),
    "mean_of_known": MeanOfKnown(),
    "median_ratio": MEDIAN_RATIO,
    "scale_by_known": SCALED_PROFILE,
    "nearest_workloads": NEAREST_WORKLOADS,
    "cpu_share": Stretch(),
}
RULES_TO_BEAT = tuple(RULES[name] for name in ("median_ratio", "cpu_share", "nearest_workloads"))
"""Rules that the guard compares the model with, by the errors of the last `trimtab models pretrain`."""
MEMBERS: Mapping[str, BlendMember] = {"curves": Curves(), "forest": ForestPredictor()}
FITTED_MEMBERS: Mapping[str, Any] = {each.kind: each for each in (FittedCurves, FittedForestPredictor)}
"""Classes of fitted members by their kind in a file of weights."""


@dataclass(frozen=True, slots=True)
class Blend:
    """Members to blend, rules to beat, and the size of the backtest."""

    members: tuple[BlendMember, ...] = tuple(MEMBERS.values())
    rules: tuple[Predictor, ...] = RULES_TO_BEAT
    folds: int = 3  # groups of training applications, each left out once; few applications one by one
    episodes: int = 400  # predictions in the backtest
    coverage: float = 0.9  # of the intervals
    seed: int = 0

    @property
    def name(self) -> str:
        return TRIMTAB

    def fit(self, cases: Sequence[Case]) -> "FittedBlend":
        need_cases(cases, self.name)
        members = tuple(member for member in self.members if member.suits(cases))
        if not members:
            raise BadInputError("none of the blended predictors suits such cases")
        trial = _BlendBacktest.of(self, members, cases)
        shares, caution = trial.best_blend(len(members))
        return FittedBlend(
            members=tuple(member.fit(cases) for member in members),
            shares=shares,
            caution=caution,
            margins=trial.margins(shares, self.coverage),
            coverage=self.coverage,
            errors=trial.errors(self.name, shares, caution),
            environments=frozenset(case.environment for case in cases),
            rules={rule.name: rule.fit(cases) for rule in self.rules},
        )


@dataclass(frozen=True, slots=True, eq=False)
class FittedBlend:
    """The blend, and the results of its backtest."""

    members: tuple[FittedMember, ...]
    shares: tuple[float, ...]
    caution: float
    margins: Mapping[int, float]  # log seconds on either side of the spread's own range, by known runs
    coverage: float
    errors: Mapping[str, Mapping[int, float]]  # mean absolute percentage error in the backtest
    environments: frozenset[str]  # those it was trained on
    rules: Mapping[str, Fitted]
    shared: SharedEncoder | None = None  # the encoder of all data sets, for similarity

    @property
    def curves(self) -> FittedCurves:
        """The member that holds the training applications one by one."""
        return next(member for member in self.members if isinstance(member, FittedCurves))

    def similarity(self, case: Case, known: Rows) -> Similarity | None:
        """Similarity to known applications; None where the encoder was not trained on such a data set."""
        if self.shared is None or case.corpus not in self.shared.neighbourhood.unseen:
            return None
        return self.shared.similarity(case, known)

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self._point(case, self.spread(case, known)))

    def spread(self, case: Case, known: Rows) -> PredictiveSample:
        """All members together; in an environment without a backtest, with equal shares."""
        shares = self.shares if case.environment in self.environments else (1.0,) * len(self.members)
        used = [(m, share) for m, share in zip(self.members, shares, strict=True) if share > 0]
        return PredictiveSample.blend([m.spread(case, known) for m, _ in used], [share for _, share in used])

    def interval(self, case: Case, known: Rows) -> tuple[Array, Array, Array]:
        """Low, answer and high in seconds; `coverage` of a new application's times lie within.

        This was tested in the environments trained on; in others the interval is wider, by choice.
        """
        spread = self.spread(case, known)
        point = self._point(case, spread)
        tail = (1 - self.coverage) / 2
        margin = self.margins[min(len(known), max(self.margins))]
        if case.environment not in self.environments:
            margin = max(margin, 0.0) + _ABROAD
        low = np.minimum(spread.quantile(tail) - margin, point)
        high = np.maximum(spread.quantile(1 - tail) + margin, point)
        return np.exp(low), np.exp(point), np.exp(high)

    def _point(self, case: Case, spread: PredictiveSample) -> Array:
        return spread.point(self.caution if case.environment in self.environments else _CAUTIONS[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A case of which only the rows in `known` have been run."""

    case: Case
    known: Rows

    @property
    def targets(self) -> Rows:
        """The rows to predict: all others with a time to compare with."""
        return np.setdiff1d(np.flatnonzero(~np.isnan(self.case.seconds)), self.known)


@dataclass(frozen=True, slots=True, eq=False)
class _Tested:
    """One episode of the backtest: the answers of every member and rule, and the measured times."""

    application: str
    case: str
    shots: int
    samples: tuple[PredictiveSample, ...]  # at the targets, one per member
    answers: dict[str, Array]  # log seconds, by rule
    measured: Array  # log seconds


@dataclass(frozen=True, slots=True, eq=False)
class _BlendBacktest:
    """The members and rules on training applications they were not fitted to."""

    episodes: tuple[_Tested, ...]

    @classmethod
    def of(cls, blend: Blend, chosen: Sequence[BlendMember], cases: Sequence[Case]) -> "_BlendBacktest":
        applications = sorted({case.application for case in cases})
        random = np.random.default_rng(blend.seed)
        count = len(applications) if len(applications) <= _FEW else blend.folds
        groups = random_folds(applications, count, random)
        tested = list[_Tested]()
        for group in groups if len(applications) > 1 else []:
            rest = [case for case in cases if case.application not in group]
            held_out = [case for case in cases if case.application in group]
            if not all(member.suits(rest) for member in chosen):
                continue
            episodes = _sample(held_out, blend.episodes // len(groups), random)
            members = [member.fit(rest) for member in chosen]
            rules = {rule.name: rule.fit(rest) for rule in blend.rules}
            for episode in episodes:
                shown, known, targets = episode.case.known_at(episode.known), episode.known, episode.targets
                samples = [member.spread(shown, known) for member in members]
                tested.append(
                    _Tested(
                        episode.case.application,
                        episode.case.label,
                        len(known),
                        tuple(PredictiveSample(s.log_seconds[targets], s.weights[targets]) for s in samples),
                        {name: np.log(rule.predict(shown, known)[targets]) for name, rule in rules.items()},
                        np.log(episode.case.seconds[targets]),
                    )
                )
        return cls(tuple(tested))

    def best_blend(self, members: int) -> tuple[tuple[float, ...], float]:
        """Shares and caution with the least mean percentage error."""
        if not self.episodes:
            return (1.0 / members,) * members, _CAUTIONS[0]
        steps = np.arange(0.0, 1.0 + _STEP / 2, _STEP).tolist()
        scores = dict[tuple[tuple[float, ...], float], float]()
        for shares in product(steps, repeat=members):
            if abs(sum(shares) - 1.0) > 1e-9:
                continue
            blended = [PredictiveSample.blend(episode.samples, shares) for episode in self.episodes]
            for caution in _CAUTIONS:
                errors = [
                    _percentage_error(sample.point(caution), episode.measured)
                    for sample, episode in zip(blended, self.episodes, strict=True)
                ]
                scores[shares, caution] = float(np.mean(errors))
        return min(scores, key=lambda choice: scores[choice])

    def margins(self, shares: tuple[float, ...], coverage: float) -> dict[int, float]:
        """Conformal margins by known runs; every application has the same weight."""
        tail = (1 - coverage) / 2
        margins = dict.fromkeys(SHOTS, _WIDEST)
        for shots in SHOTS:
            episodes = [episode for episode in self.episodes if episode.shots == shots]
            misses = list[Array]()
            for episode in episodes:
                sample = PredictiveSample.blend(episode.samples, shares)
                low, high = sample.quantile(tail), sample.quantile(1 - tail)
                misses.append(np.maximum(low - episode.measured, episode.measured - high))
            if misses:
                applications = [episode.application for episode in episodes for _ in episode.measured]
                cases = len({episode.case for episode in episodes})
                margins[shots] = conformal_margin(
                    np.concatenate(misses), coverage, applications, count=cases, widest=_WIDEST
                )
        return margins

    def errors(self, name: str, shares: tuple[float, ...], caution: float) -> dict[str, dict[int, float]]:
        """Mean absolute percentage error of the blend and of every rule, by known runs."""
        errors: dict[str, dict[int, list[float]]] = {}
        for episode in self.episodes:
            own = PredictiveSample.blend(episode.samples, shares).point(caution)
            for predictor, answer in {name: own, **episode.answers}.items():
                by_shots = errors.setdefault(predictor, {})
                by_shots.setdefault(episode.shots, []).append(_percentage_error(answer, episode.measured))
        return {
            predictor: {shots: float(np.mean(by_shots[shots])) for shots in sorted(by_shots)}
            for predictor, by_shots in errors.items()
        }


def _sample(cases: Sequence[Case], count: int, random: np.random.Generator) -> list[Episode]:
    """Episodes with one, two and three known runs in turn, the cases in turn too."""
    usable = [(case, np.flatnonzero(~np.isnan(case.seconds))) for case in cases]
    episodes = list[Episode]()
    for turn in range(count):
        shots = SHOTS[turn % len(SHOTS)]
        case, measured = usable[(turn // len(SHOTS)) % len(usable)]
        if len(measured) > shots:
            episodes.append(Episode(case, np.sort(random.choice(measured, shots, replace=False))))
    return episodes


def _percentage_error(answer: Array, measured: Array) -> float:
    return float(np.abs(np.expm1(answer - measured)).mean())
