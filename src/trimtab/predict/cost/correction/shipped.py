"""The corrections that come with a device's constants: learned, tested, kept and read back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator
from trimtab.core import BadInputError
from trimtab.predict.cost.calibrated import reference
from trimtab.predict.cost.correction.learn import (
    OUTCOMES_TRIED,
    OutcomeTrial,
    by_model_quantile,
    corrected_memory,
    learn_memory,
    learn_spread,
    try_outcomes,
)
from trimtab.predict.cost.correction.memory import MemoryCorrection, correction_data, parse_correction
from trimtab.predict.cost.correction.outcomes import Spread
from trimtab.predict.cost.fit import OthersWithout, cases
from trimtab.predict.cost.measurements import MeasuredStep

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Backtest:
    """Mean absolute percentage errors on models left out, as shares; `time[k]` with k earlier outcomes.

    `memory_error` is truth over corrected peak, (5 %, 95 %), every model counting the same.
    """

    time_rule: float
    time: Mapping[int, float]
    memory_rule: float
    memory: float
    memory_error: tuple[float, float]

    def time_with(self, outcomes: int) -> float:
        """The error with that many outcomes; where they were not tested, with the nearest number below."""
        return self.time[max(k for k in self.time if k <= max(outcomes, min(self.time)))]


@dataclass(frozen=True, slots=True)
class Corrections:
    """All that is learned beside the rule."""

    models: int
    spread: Spread
    memory: MemoryCorrection
    backtest: Backtest


def learn_corrections(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    left_out: tuple[Array, Array],
    without: OthersWithout,
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
    return Corrections(
        len(case.models),
        replace(spread, margin=max(float(np.median(t.margins())) for t in trials.values())),
        learn_memory(case, peaks),
        Backtest(
            time_rule=_mean_error(trials[OUTCOMES_TRIED[0]].rule),
            time={k: _mean_error(t.guarded) for k, t in trials.items()},
            memory_rule=_mean_error((peaks / truth)[weighed]),
            memory=_mean_error(1.0 / ratio),
            memory_error=(
                min(1.0, by_model_quantile(ratio, names, 0.05)),
                max(1.0, by_model_quantile(ratio, names, 0.95)),
            ),
        ),
    )


def trial_without_the_model(
    steps: Sequence[MeasuredStep],
    seconds: Array,
    without: OthersWithout,
    shots: int,
    seed: int = 0,
    spoil: bool = False,
) -> OutcomeTrial:
    """Predictions from earlier outcomes with a spread that other models alone give."""
    names = np.array([s.name for s in steps])
    spreads = {name: learn_spread(steps, others, names != name) for name, others in without.seconds.items()}
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


def parse_corrections(data: Mapping[str, Any], where: str) -> Corrections:
    """And back."""
    try:
        test = dict(data["backtest"])
        spread = Spread(**{name: float(v) for name, v in data["spread"].items()})
        if not (0 < spread.total < np.inf and all(v >= 0 for v in asdict(spread).values())):
            raise ValueError("a variance is not above zero")
        low, high = test["memory_error"]
        return Corrections(
            int(data["models"]),
            spread,
            parse_correction(data["memory"]),
            Backtest(
                float(test["time_rule"]),
                {int(k): float(error) for k, error in test["time"].items()},
                float(test["memory_rule"]),
                float(test["memory"]),
                (float(low), float(high)),
            ),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the corrections of {where} are not this version's: {error}") from None


@cache
def shipped_corrections() -> Corrections | None:
    """Those of the reference device; None where only constants come with it."""
    device = reference()
    entry = device.constants.get("corrections")
    return None if entry is None else parse_corrections(entry, device.name)
