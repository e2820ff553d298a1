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
    similarity,
    squared_distance,
)
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.fit import Cases, Unseen, cases
from trimtab.predict.cost.measurements import MeasuredStep
from trimtab.predict.interval import conformal_interval, conformal_margin

Array = NDArray[np.float64]

# Pairs that differ by more than this many times the whole variance count as differing by that.
_WILD = 5.0
# The middle of the nine settings that were tried; the others scored within a point of it.
_VARIANCE = 0.01
_MODEL_NOISE = 0.003
_STEP_NOISE = 0.003
_POINTS = 60

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


def corrected_memory(case: Cases, peaks: Array, without: Unseen) -> Array:
    """Every row's peak as the guard answers: corrected by what other models were off by, if they are alike.

    `peaks` are the rule's by constants without the row's model; of that model, nothing takes part.
    """
    corrected = peaks.copy()
    names = np.array([s.name for s in case.steps])
    for name, (_, others) in without.items():
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
            margin[name] = conformal_margin(self.off[others], _COVERAGE, self.models[others])
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
            known_ratios = np.exp(ratios[known])
            if spoil:
                known_ratios[-1] *= random.uniform(0.05, 0.9)
            runs = [PastRun(settings[i], float(r), 0.0) for i, r in zip(known, known_ratios, strict=True)]
            found = hindsight(spread, runs, [settings[i] for i in targets])
            trusted = (found.belief >= BELIEVED).any()
            models += [name] * len(targets)
            rule += np.exp(-ratios[targets]).tolist()
            guarded += np.exp((found.mean if trusted else 0.0) - ratios[targets]).tolist()
            off += (np.abs(ratios[targets] - found.mean) / found.deviation).tolist()
    return OutcomeTrial(np.array(models), np.array(rule), np.array(guarded), np.array(off))


def _log_ratios(steps: Sequence[MeasuredStep], seconds: Array) -> Array:
    return np.asarray(np.log(np.array([s.seconds or np.nan for s in steps]) / seconds))


def learn_corrections(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    left_out: tuple[Array, Array],
    without: Unseen,
) -> Corrections:
    """From all models, with errors from leaving each out; `left_out` are the rule's seconds and peaks so."""
    seconds, peaks = left_out
    case = cases(steps, accelerator)
    trials = {k: trial_without_the_model(steps, seconds, without, k) for k in OUTCOMES_TRIED}
    truth = np.array([s.peak_memory or np.nan for s in steps])
    weighed = np.isfinite(truth)
    corrected = corrected_memory(case, peaks, without)
    ratio = (truth / corrected)[weighed]
    names = np.array([s.name for s in steps])[weighed]
    spread = learn_spread(steps, seconds)
    low, high = conformal_interval(ratio, _COVERAGE, names)
    return Corrections(
        len(case.models),
        replace(spread, margin=max(float(np.median(t.margins())) for t in trials.values())),
        learn_memory(case, peaks),
        CorrectionBacktest(
            time_rule=_mean_error(trials[OUTCOMES_TRIED[0]].rule),
            time={k: _mean_error(t.guarded) for k, t in trials.items()},
            memory_rule=_mean_error((peaks / truth)[weighed]),
            memory=_mean_error(1.0 / ratio),
            memory_error=(min(1.0, low), max(1.0, high)),
        ),
    )


def trial_without_the_model(
    steps: Sequence[MeasuredStep],
    seconds: Array,
    without: Unseen,
    shots: int,
    seed: int = 0,
    spoil: bool = False,
) -> OutcomeTrial:
    """Predictions from earlier outcomes with a spread that other models alone give."""
    names = np.array([s.name for s in steps])
    spreads = {name: learn_spread(steps, others, names != name) for name, (others, _) in without.items()}
    return try_outcomes(steps, seconds, spreads, shots, seed, spoil)


def _mean_error(ratio: Array) -> float:
    return float(np.abs(ratio - 1.0).mean())


def corrections_data(found: Corrections) -> dict[str, Any]:
    """As the catalog's entry of the device holds them."""
    test = asdict(found.backtest)
    return {
        "models": found.models,
        "spread": {name: float(f"{v:.4g}") for name, v in asdict(found.spread).items()},
        "memory": correction_data(found.memory),
        "backtest": {
            **{name: round(test[name], 4) for name in ("time_rule", "memory_rule", "memory")},
            "time": {str(k): round(error, 4) for k, error in found.backtest.time.items()},
            "memory_error": [round(v, 4) for v in found.backtest.memory_error],
        },
    }


def correction_data(correction: MemoryCorrection) -> dict[str, Any]:
    """As plain data."""
    return {
        "center": _rounded(correction.center),
        "scale": _rounded(correction.scale),
        "points": [_rounded(point) for point in correction.points],
        "weights": _rounded(correction.weights),
        "farthest": round(correction.farthest, 4),
    }


def fit_memory_correction(features: Array, ratios: Array, models: Sequence[str]) -> MemoryCorrection:
    """From log(measured / estimated) of steps whose model the estimates had not seen."""
    center, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    places, names = (features - center) / scale, np.array(models)
    points = places[_most_telling(places, min(_POINTS, len(places)))]
    cross = _VARIANCE * similarity(points, places)
    through_noise = _without_noise(np.column_stack([cross.T, ratios]), names)
    among = _VARIANCE * similarity(points, points) + 1e-8 * np.eye(len(points))
    weights = np.linalg.solve(among + cross @ through_noise[:, :-1], cross @ through_noise[:, -1])
    return MemoryCorrection(center, scale, points, np.asarray(_VARIANCE * weights), _farthest(places, names))


def fit_spread(ratios: Array, models: Sequence[str], batches: Array, half: NDArray[np.bool_]) -> Spread:
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
    # What is not shared cannot be more than there is.
    configuration = min(configuration, total)
    return Spread(total, configuration, min(number_format, total - configuration), doubling)


def _without_noise(columns: Array, names: NDArray[np.str_]) -> Array:
    """The columns times the inverse of the noise's covariance, which is one block per model."""
    _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, which, columns)
    shared = _MODEL_NOISE / (_STEP_NOISE + counts * _MODEL_NOISE)
    return np.asarray((columns - (shared[:, None] * sums)[which]) / _STEP_NOISE)


def _rounded(values: Array) -> list[float]:
    return [float(f"{v:.5g}") for v in values]


def _nearest(some: Array, others: Array) -> Array:
    return np.asarray(np.sqrt(squared_distance(some, others).min(axis=1)))


def _farthest(places: Array, names: NDArray[np.str_]) -> float:
    """The largest distance of a model's step to the nearest of other models."""
    models = np.unique(names)
    if len(models) < 2:
        return 0.0
    return float(max(_nearest(places[names == n], places[names != n]).max() for n in models))


def _most_telling(places: Array, count: int) -> list[int]:
    """Pivots of a Cholesky decomposition: each is the place that the ones before say least about."""
    left, columns, chosen = np.ones(len(places)), np.zeros((len(places), count)), []
    for j in range(count):
        pivot = int(np.argmax(left))
        if left[pivot] < 1e-9:
            break
        chosen.append(pivot)
        column = similarity(places, places[pivot : pivot + 1])[:, 0] - columns[:, :j] @ columns[pivot, :j]
        columns[:, j] = column / np.sqrt(left[pivot])
        left = np.maximum(left - columns[:, j] ** 2, 0.0)
    return chosen
