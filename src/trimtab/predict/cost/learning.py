"""Learning the corrections from measured steps, and testing them on models left out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator
from trimtab.predict.cost.correction import (
    BELIEVED,
    CorrectionBacktest,
    Corrections,
    MemoryCorrection,
    PastRun,
    Setting,
    Spread,
    hindsight,
    memory_features,
)
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.fit import Cases, Unseen, cases
from trimtab.predict.cost.measurements import MeasuredStep
from trimtab.predict.gaussian_process import inducing_rows, inducing_weights, squared_distance
from trimtab.predict.interval import conformal_interval, conformal_margin
from trimtab.predict.tables import Array, Flags

# Pairs that differ by more than this many times the total variance count as differing by that.
_WILD = 5.0
# The middle of the nine settings that were tried; the others scored within a point of it.
_VARIANCE = 0.01
_MODEL_NOISE = 0.003
_STEP_NOISE = 0.003
_POINTS = 60

OUTCOMES_TRIED = (1, 2, 3)
_DRAWS = 10
_COVERAGE = 0.9


def learn_memory(case: Cases, peaks: Array, chosen: Flags | None = None) -> MemoryCorrection:
    """Memory correction from the chosen rows; `peaks` are estimates by constants without the row's model."""
    truth = _peaks(case.steps)
    use = np.isfinite(truth / peaks) & (True if chosen is None else chosen)
    features, ratios = memory_features(case.need, peaks)[use], np.log(truth / peaks)[use]
    names = np.array([s.name for s, used in zip(case.steps, use, strict=True) if used])
    center, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    places = (features - center) / scale
    distance = squared_distance(places, places) / places.shape[1]
    kernel = np.exp(-0.5 * distance)
    rows = inducing_rows(kernel, _POINTS)
    among = _VARIANCE * kernel[np.ix_(rows, rows)] + 1e-8 * np.eye(len(rows))
    weights = inducing_weights(among, _VARIANCE * kernel[rows], ratios, names, _MODEL_NOISE, _STEP_NOISE)
    # Of every step the nearest of another model.
    nearest = np.where(names[:, None] == names[None], np.inf, distance).min(axis=1)
    farthest = float(np.sqrt(nearest.max())) if np.isfinite(nearest).all() else 0.0
    return MemoryCorrection(center, scale, places[rows], _VARIANCE * weights, farthest)


def learn_spread(steps: Sequence[MeasuredStep], seconds: Array, chosen: Flags | None = None) -> Spread:
    """Spread of the chosen training rows; `seconds` are estimates by constants without the row's model."""
    ratios = _log_ratios(steps, seconds)
    training = np.array([s.training for s in steps])
    use = np.isfinite(ratios) & training & (True if chosen is None else chosen)
    rows = [s for s, used in zip(steps, use, strict=True) if used]
    batches = np.array([float(s.batch) for s in rows])
    return fit_spread(
        ratios[use], [s.name for s in rows], batches, np.array([is_half(s.precision) for s in rows])
    )


def fit_spread(ratios: Array, models: Sequence[str], batches: Array, half: Flags) -> Spread:
    """The spread of left-out models' log ratios (truth over rule), by how alike two steps of a model are."""
    from scipy.optimize import nnls  # late: only learning needs SciPy

    names = np.array(models)
    first, second = np.triu_indices(len(ratios), 1)
    same = names[first] == names[second]
    first, second = first[same], second[same]
    apart = np.abs(np.log2(batches[first] / batches[second]))
    terms = np.stack([np.ones(len(apart)), half[first] != half[second], apart], axis=1)
    total = float(np.mean(ratios**2))
    # Half the squared difference of two steps is what they do not share; one wild pair must not set it.
    unshared = np.minimum((ratios[first] - ratios[second]) ** 2 / 2, _WILD * total)
    configuration, number_format, doubling = nnls(terms, unshared)[0].tolist()
    # The parts cannot exceed the total.
    configuration = min(configuration, total)
    return Spread(total, configuration, min(number_format, total - configuration), doubling)


def corrected_memory(case: Cases, peaks: Array, without: Unseen) -> Array:
    """Every row's peak as the guard answers, corrected by the errors for other models.

    `peaks` are the rule's by constants without the row's model; the correction is without it, too.
    """
    corrected = peaks.copy()
    names = np.array([s.name for s in case.steps])
    for name, (_, others) in without.items():
        rows = names == name
        corrected[rows] = guarded_memory(learn_memory(case, others, ~rows), case, peaks)[rows]
    return corrected


def guarded_memory(learned: MemoryCorrection, case: Cases, peaks: Array) -> Array:
    """Peaks as the guard answers: corrected where the step is like those learned from, else the rule's."""
    factor, unlike = learned.factor(case.need, peaks)
    return np.where(unlike <= learned.farthest, peaks * factor, peaks)


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTrial:
    """Steps of left-out models predicted from some known ones: estimate over truth.

    `off` is the error in standard deviations.
    """

    models: NDArray[np.str_]
    rule: Array
    guarded: Array
    off: Array

    def margins(self) -> Array:
        """For every row: standard deviations that hold 90 % of the other models' steps."""
        margin = {}
        for name in np.unique(self.models):
            others = self.models != name
            margin[name] = conformal_margin(self.off[others], _COVERAGE, self.models[others])
        return np.array([margin[name] for name in self.models])

    def coverage(self) -> float:
        """Share of the rows within the interval that other models alone set."""
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

    `spreads` are those to use for each model. With `spoil`, one more outcome was stopped before its end.
    """
    random = np.random.default_rng(seed)
    ratios = _log_ratios(steps, seconds)
    settings = [Setting("tested", 1.0, float(s.batch), is_half(s.precision)) for s in steps]
    models, rule, guarded, off = [], [], [], []
    for name in dict.fromkeys(s.name for s in steps):
        rows = [i for i, s in enumerate(steps) if s.name == name and s.training and np.isfinite(ratios[i])]
        for _ in range(_DRAWS if len(rows) > shots + spoil else 0):
            drawn = random.permutation(rows)
            known, targets = drawn[: shots + spoil], drawn[shots + spoil :]
            known_ratios = np.exp(ratios[known])
            if spoil:
                known_ratios[-1] *= random.uniform(0.05, 0.9)
            runs = [PastRun(settings[i], float(r), 0.0) for i, r in zip(known, known_ratios, strict=True)]
            answer = hindsight(spreads[name], runs, [settings[i] for i in targets])
            trusted = (answer.belief >= BELIEVED).any()
            models += [name] * len(targets)
            rule += np.exp(-ratios[targets]).tolist()
            guarded += np.exp((answer.mean if trusted else 0.0) - ratios[targets]).tolist()
            off += (np.abs(ratios[targets] - answer.mean) / answer.deviation).tolist()
    return OutcomeTrial(np.array(models), np.array(rule), np.array(guarded), np.array(off))


def spreads_without_the_model(steps: Sequence[MeasuredStep], without: Unseen) -> dict[str, Spread]:
    """By model: the spread that other models alone give."""
    names = np.array([s.name for s in steps])
    return {name: learn_spread(steps, others, names != name) for name, (others, _) in without.items()}


def learn_corrections(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, left_out: tuple[Array, Array], without: Unseen
) -> Corrections:
    """Corrections from all models; their errors come from leave-one-out, as do the rule's in `left_out`."""
    seconds, peaks = left_out
    case = cases(steps, accelerator)
    spreads = spreads_without_the_model(steps, without)
    trials = {k: try_outcomes(steps, seconds, spreads, k) for k in OUTCOMES_TRIED}
    truth = _peaks(steps)
    measured = np.isfinite(truth)
    ratio = (truth / corrected_memory(case, peaks, without))[measured]
    low, high = conformal_interval(ratio, _COVERAGE, np.array([s.name for s in steps])[measured])
    margin = max(float(np.median(trial.margins())) for trial in trials.values())
    return Corrections(
        len(case.models),
        replace(learn_spread(steps, seconds), margin=margin),
        learn_memory(case, peaks),
        CorrectionBacktest(
            time_rule=_mean_error(trials[OUTCOMES_TRIED[0]].rule),
            time={k: _mean_error(trial.guarded) for k, trial in trials.items()},
            memory_rule=_mean_error((peaks / truth)[measured]),
            memory=_mean_error(1.0 / ratio),
            memory_error=(min(1.0, low), max(1.0, high)),
        ),
    )


def _peaks(steps: Sequence[MeasuredStep]) -> Array:
    return np.array([s.peak_memory or np.nan for s in steps])


def _log_ratios(steps: Sequence[MeasuredStep], seconds: Array) -> Array:
    return np.asarray(np.log(np.array([s.seconds or np.nan for s in steps]) / seconds))


def _mean_error(ratio: Array) -> float:
    return float(np.abs(ratio - 1.0).mean())


def corrections_data(corrections: Corrections) -> dict[str, Any]:
    test = asdict(corrections.backtest)
    return {
        "models": corrections.models,
        "spread": {name: float(f"{v:.4g}") for name, v in asdict(corrections.spread).items()},
        "memory": correction_data(corrections.memory),
        "backtest": {
            **{name: round(test[name], 4) for name in ("time_rule", "memory_rule", "memory")},
            "time": {str(k): round(error, 4) for k, error in corrections.backtest.time.items()},
            "memory_error": [round(v, 4) for v in corrections.backtest.memory_error],
        },
    }


def correction_data(correction: MemoryCorrection) -> dict[str, Any]:
    """Plain data of a memory correction, numbers with five digits."""

    def rounded(values: Array) -> list[float]:
        return [float(f"{v:.5g}") for v in values]

    return {
        "center": rounded(correction.center),
        "scale": rounded(correction.scale),
        "points": [rounded(point) for point in correction.points],
        "weights": rounded(correction.weights),
        "farthest": round(correction.farthest, 4),
    }
