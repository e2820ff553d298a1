"""Trimtab's predictor: a blend of curves and forest, calibrated on held-out training applications.

How much each member is trusted, how cautious the answer is and how wide its interval must be are decided on
training applications alone: some are held out at a time, predicted by members that have not seen them, and
compared with what was measured. The rules go through the same backtest, so the guard knows beforehand which
of them is better.

`RULES` and `MEMBERS` are the registry: a new predictor is one class with one line there, and the bench runs
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Protocol

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.curves import Curves, FittedCurves
from trimtab.predict.fewshot.forest import ForestPredictor
from trimtab.predict.fewshot.neighbourhood import SharedEncoder, Similarity
from trimtab.predict.fewshot.predictor import Arrays, Fitted, Predictor, Rows, Spread, Words, need_cases
from trimtab.predict.fewshot.rules import (
    Interpolation,
    MeanOfKnown,
    MedianRatio,
    NearestKnown,
    NearestWorkloads,
    ScaledProfile,
    Stretch,
)
from trimtab.predict.interval import conformal_margin

TRIMTAB = "trimtab"
SHOTS = (1, 2, 3)  # known runs that predictors are tested with
_CAUTIONS = (0.5, 0.75, 1.0)
_ABROAD = 0.25  # log seconds on either side more in an environment that was not trained on
_FEW = 12  # applications
_STEP = 0.25  # between two blends that are compared
_WIDEST = 3.0  # log seconds; with too few applications to calibrate on, a range is this wide


class FittedMember(Protocol):
    """A predictor that also says how sure it is, and can be kept in a file of weights."""

    kind: ClassVar[str]  # in a file of weights

    def refit(self, cases: Sequence[Case]) -> "FittedMember": ...

    def to_weights(self) -> tuple[Arrays, Words]: ...

    def spread(self, case: Case, known: Rows) -> Spread: ...

    def predict(self, case: Case, known: Rows) -> Array: ...


class BlendMember(Protocol):
    """One that can be blended."""

    @property
    def name(self) -> str: ...

    def suits(self, cases: Sequence[Case]) -> bool:
        """Whether it is made for such cases."""
        ...

    def fit(self, cases: Sequence[Case]) -> FittedMember: ...


# The registry of predictors, by the name that the bench gives them.
RULES: Mapping[str, Predictor] = {
    "nearest": NearestKnown(),
    "interpolation": Interpolation(),
    "mean_of_known": MeanOfKnown(),
    "median_ratio": MedianRatio(),
    "scale_by_known": ScaledProfile(),
    "nearest_workloads": NearestWorkloads(),
    "cpu_share": Stretch(),
}
MEMBERS: Mapping[str, BlendMember] = {"curves": Curves(), "forest": ForestPredictor()}
_RULES_TO_BEAT = ("median_ratio", "cpu_share", "nearest_workloads")


@dataclass(frozen=True, slots=True)
class Blend:
    """Which members are blended, against which rules, and how thoroughly they are tested."""

    members: tuple[BlendMember, ...] = tuple(MEMBERS.values())
    rules: tuple[Predictor, ...] = tuple(RULES[name] for name in _RULES_TO_BEAT)
    folds: int = 3  # groups of training applications, each left out once; few applications one by one
    episodes: int = 400  # predictions to decide on
    coverage: float = 0.9  # of the ranges
    seed: int = 0

    @property
    def name(self) -> str:
        return TRIMTAB

    def fit(self, cases: Sequence[Case]) -> "FittedBlend":
        need_cases(cases, self.name)
        members = tuple(member for member in self.members if member.suits(cases))
        if not members:
            raise BadInputError("none of the blended predictors is made for such cases")
        trial = _Trial.of(self, members, cases)
        shares, caution = trial.best_blend(len(members))
        return FittedBlend(
            members=tuple(member.fit(cases) for member in members),
            shares=shares,
            caution=caution,
            margins=trial.margins(shares, self.coverage),
            coverage=self.coverage,
            errors=trial.errors(self, shares, caution),
            environments=frozenset(case.environment for case in cases),
            rules={rule.name: rule.fit(cases) for rule in self.rules},
        )


@dataclass(frozen=True, slots=True, eq=False)
class FittedBlend:
    """The blend, and what its backtest said."""

    members: tuple[FittedMember, ...]
    shares: tuple[float, ...]
    caution: float
    margins: Mapping[int, float]  # log seconds on either side of the spread's own range, by known runs
    coverage: float
    errors: Mapping[str, Mapping[int, float]]  # mean absolute percentage error in the backtest
    environments: frozenset[str]  # those it was trained on
    rules: Mapping[str, Fitted]
    shared: SharedEncoder | None = None  # the encoder of all data sets, to tell what an application is like

    @property
    def curves(self) -> FittedCurves:
        """The member that knows the training applications one by one."""
        return next(member for member in self.members if isinstance(member, FittedCurves))

    def similarity(self, case: Case, known: Rows) -> Similarity | None:
        """Nearness of the most alike known applications; None where the encoder never saw such a data set."""
        if self.shared is None or case.corpus not in self.shared.neighbourhood.unseen:
            return None
        return self.shared.similarity(case, known)

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self._point(case, self.spread(case, known)))

    def spread(self, case: Case, known: Rows) -> Spread:
        """All members together; in an environment nobody was tested in, none is trusted more than another."""
        shares = self.shares if case.environment in self.environments else (1.0,) * len(self.members)
        used = [(m, share) for m, share in zip(self.members, shares, strict=True) if share > 0]
        return Spread.blend([m.spread(case, known) for m, _ in used], [share for _, share in used])

    def interval(self, case: Case, known: Rows) -> tuple[Array, Array, Array]:
        """Low, answer and high in seconds; `coverage` of an unseen application's times lie within.

        That was tested in the environments trained on; in another the range is wider, by choice.
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

    def _point(self, case: Case, spread: Spread) -> Array:
        return spread.point(self.caution if case.environment in self.environments else _CAUTIONS[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A case of which only the rows in `known` have been run."""

    case: Case
    known: Rows

    @property
    def targets(self) -> Rows:
        """The rows to predict: all others with a time to compare with."""
        hidden = np.ones(len(self.case), dtype=bool)
        hidden[self.known] = False
        return np.flatnonzero(hidden & ~np.isnan(self.case.seconds))


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """One episode of the backtest: what every member and rule answered, and what was measured."""

    application: str
    case: str
    shots: int
    spreads: tuple[Spread, ...]  # at the targets, one per member
    answers: dict[str, Array]  # log seconds, by rule
    measured: Array  # log seconds


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """The members and rules on training applications they were not fitted to."""

    shown: tuple[_Shown, ...]

    @classmethod
    def of(cls, ours: Blend, chosen: Sequence[BlendMember], cases: Sequence[Case]) -> "_Trial":
        applications = sorted({case.application for case in cases})
        random = np.random.default_rng(ours.seed)
        count = len(applications) if len(applications) <= _FEW else ours.folds
        groups = random_folds(applications, count, random)
        shown = list[_Shown]()
        for group in groups if len(applications) > 1 else []:
            rest = [case for case in cases if case.application not in group]
            met = [case for case in cases if case.application in group]
            if not all(member.suits(rest) for member in chosen):
                continue
            episodes = _sample(met, ours.episodes // len(groups), random)
            members = [member.fit(rest) for member in chosen]
            rules = {rule.name: rule.fit(rest) for rule in ours.rules}
            for episode in episodes:
                seen, known, targets = episode.case.seen_at(episode.known), episode.known, episode.targets
                spreads = [member.spread(seen, known) for member in members]
                shown.append(
                    _Shown(
                        episode.case.application,
                        episode.case.label,
                        len(known),
                        tuple(Spread(s.log_seconds[targets], s.weights[targets]) for s in spreads),
                        {name: np.log(rule.predict(seen, known)[targets]) for name, rule in rules.items()},
                        np.log(episode.case.seconds[targets]),
                    )
                )
        return cls(tuple(shown))

    def best_blend(self, members: int) -> tuple[tuple[float, ...], float]:
        """Shares and caution with the least mean percentage error."""
        steps = np.arange(0.0, 1.0 + _STEP / 2, _STEP).tolist()
        blends = [b for b in product(steps, repeat=members) if abs(sum(b) - 1.0) < 1e-9]
        if not self.shown:
            return (1.0 / members,) * members, _CAUTIONS[0]
        scores = dict[tuple[tuple[float, ...], float], float]()
        for shares in blends:
            blended = [Spread.blend(one.spreads, shares) for one in self.shown]
            for caution in _CAUTIONS:
                scores[shares, caution] = float(
                    np.mean(
                        [
                            _percentage_error(spread.point(caution), one.measured)
                            for spread, one in zip(blended, self.shown, strict=True)
                        ]
                    )
                )
        return min(scores, key=lambda choice: scores[choice])

    def margins(self, shares: tuple[float, ...], coverage: float) -> dict[int, float]:
        """Conformal, by application: each counts the same however many of its points there are."""
        tail = (1 - coverage) / 2
        margins = {}
        for shots in SHOTS:
            mine = [one for one in self.shown if one.shots == shots]
            misses = list[Array]()
            for one in mine:
                spread = Spread.blend(one.spreads, shares)
                low, high = spread.quantile(tail), spread.quantile(1 - tail)
                misses.append(np.maximum(low - one.measured, one.measured - high))
            applications = [one.application for one in mine for _ in one.measured]
            margins[shots] = (
                conformal_margin(
                    np.concatenate(misses),
                    coverage,
                    applications,
                    count=len({one.case for one in mine}),
                    widest=_WIDEST,
                )
                if misses
                else _WIDEST
            )
        return margins

    def errors(self, ours: Blend, shares: tuple[float, ...], caution: float) -> dict[str, dict[int, float]]:
        """Mean absolute percentage error of the blend and of every rule, by known runs."""
        found: dict[str, dict[int, list[float]]] = {}
        for one in self.shown:
            answers = {ours.name: Spread.blend(one.spreads, shares).point(caution), **one.answers}
            for name, answer in answers.items():
                by_shots = found.setdefault(name, {})
                by_shots.setdefault(one.shots, []).append(_percentage_error(answer, one.measured))
        return {
            name: {shots: float(np.mean(errors)) for shots, errors in sorted(by_shots.items())}
            for name, by_shots in found.items()
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
