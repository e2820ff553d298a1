"""Learning the corrections from measured steps, and testing them on models left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.cost.correction.memory import MemoryCorrection, fit_memory_correction, memory_features
from trimtab.predict.cost.correction.outcomes import BELIEVED, PastRun, Setting, Spread, fit_spread, hindsight
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.fit import Cases, OthersWithout
from trimtab.predict.cost.measurements import MeasuredStep

Array = NDArray[np.float64]

OUTCOMES_TRIED = (1, 2, 3)
_DRAWS = 10
_COVERAGE = 0.9


def learn_memory(case: Cases, peaks: Array, chosen: NDArray[np.bool_] | None = None) -> MemoryCorrection:
    """From the chosen rows; `peaks` are estimates that had not seen the row's model."""
    truth = np.array([s.peak_memory or np.nan for s in case.steps])
    use = np.isfinite(truth / peaks) & (True if chosen is None else chosen)
    features = memory_features(case.need, peaks)[use]
    models = [s.name for s, used in zip(case.steps, use, strict=True) if used]
    return fit_memory_correction(features, np.log(truth / peaks)[use], models)


def learn_spread(
    steps: Sequence[MeasuredStep], seconds: Array, chosen: NDArray[np.bool_] | None = None
) -> Spread:
    """From the chosen training rows; `seconds` are estimates that had not seen the row's model."""
    ratios = _log_ratios(steps, seconds)
    training = np.array([s.training for s in steps])
    use = np.isfinite(ratios) & training & (True if chosen is None else chosen)
    rows = [s for s, used in zip(steps, use, strict=True) if used]
    return fit_spread(
        ratios[use],
        [s.name for s in rows],
        np.array([float(s.batch) for s in rows]),
        np.array([is_half(s.precision) for s in rows]),
    )


def corrected_memory(case: Cases, peaks: Array, without: OthersWithout) -> Array:
    """Every row's peak as the guard answers: corrected by what other models were off by, if they are alike.

    `peaks` are the rule's by constants without the row's model; of that model, nothing takes part.
    """
    corrected = peaks.copy()
    names = np.array([s.name for s in case.steps])
    for name, others in without.peaks.items():
        theirs = names == name
        corrected[theirs] = guarded_memory(learn_memory(case, others, ~theirs), case, peaks)[theirs]
    return corrected


def guarded_memory(learned: MemoryCorrection, case: Cases, peaks: Array) -> Array:
    """Peaks as the guard answers: corrected where the step is like those learned from, else the rule's."""
    factor, unlike = learned.factor(case.need, peaks)
    return np.where(unlike <= learned.farthest, peaks * factor, peaks)


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTrial:
    """Steps of left-out models predicted from some known ones: estimate over truth, and what the range says.

    `off` is by how many standard deviations the truth was missed.
    """

    models: NDArray[np.str_]
    rule: Array
    guarded: Array
    off: Array

    def margins(self) -> Array:
        """For every row: standard deviations that hold 90 % of the other models' steps, models alike."""
        margin = {}
        for name in np.unique(self.models):
            others = self.models != name
            margin[name] = by_model_quantile(self.off[others], self.models[others], _COVERAGE)
        return np.array([margin[name] for name in self.models])

    def coverage(self) -> float:
        """How often the range held that other models alone set."""
        return float((self.off <= self.margins()).mean())


def try_outcomes(
    steps: Sequence[MeasuredStep],
    seconds: Array,
    spreads: Mapping[str, Spread],
    shots: int,
    seed: int = 0,
    spoil: bool = False,
) -> OutcomeTrial:
    """Draw `shots` training steps of a model as earlier outcomes and predict its others.

    `spreads` are those to use for each model.
    With `spoil`, one more is known that was stopped somewhere before its end.
    """
    random = np.random.default_rng(seed)
    ratios = _log_ratios(steps, seconds)
    settings = [Setting("tested", 1.0, float(s.batch), is_half(s.precision)) for s in steps]
    models, rule, guarded, off = [], [], [], []
    for name in dict.fromkeys(s.name for s in steps):
        spread = spreads[name]
        rows = [i for i, s in enumerate(steps) if s.name == name and s.training and np.isfinite(ratios[i])]
        for _ in range(_DRAWS if len(rows) > shots + spoil else 0):
            drawn = random.permutation(rows)
            known, targets = drawn[: shots + spoil], drawn[shots + spoil :]
            told = np.exp(ratios[known])
            if spoil:
                told[-1] *= random.uniform(0.05, 0.9)
            runs = [PastRun(settings[i], float(r), 0.0) for i, r in zip(known, told, strict=True)]
            found = hindsight(spread, runs, [settings[i] for i in targets])
            trusted = (found.belief >= BELIEVED).any()
            models += [name] * len(targets)
            rule += np.exp(-ratios[targets]).tolist()
            guarded += np.exp((found.mean if trusted else 0.0) - ratios[targets]).tolist()
            off += (np.abs(ratios[targets] - found.mean) / found.deviation).tolist()
    return OutcomeTrial(np.array(models), np.array(rule), np.array(guarded), np.array(off))


def _log_ratios(steps: Sequence[MeasuredStep], seconds: Array) -> Array:
    return np.asarray(np.log(np.array([s.seconds or np.nan for s in steps]) / seconds))


def by_model_quantile(values: Array, models: NDArray[np.str_], level: float) -> float:
    """The quantile to state for a further model, each of the models counting the same.

    Conformal: of n models, it is the level (n + 1) / n times as high (or as low, below one half).
    """
    names, which, counts = np.unique(models, return_inverse=True, return_counts=True)
    outward = (level - 0.5) / len(names)
    order = np.argsort(values)
    reached = np.cumsum((1.0 / (counts * len(names)))[which][order])
    place = np.searchsorted(reached, np.clip(level + outward, 0.0, 1.0) - 1e-12)
    return float(values[order][min(int(place), len(values) - 1)])
