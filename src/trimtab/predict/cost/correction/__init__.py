"""A learned correction beside the analytic rule, and the guard that lets one of the two answer."""

from trimtab.predict.cost.correction.guard import Choice, EarlierRun, GuardedEstimates, GuardedEstimator
from trimtab.predict.cost.correction.learn import (
    OUTCOMES_TRIED,
    OutcomeTrial,
    by_model_quantile,
    corrected_memory,
    guarded_memory,
    try_outcomes,
)
from trimtab.predict.cost.correction.shipped import (
    Backtest,
    Corrections,
    corrections_data,
    learn_corrections,
    shipped_corrections,
    trial_without_the_model,
)

__all__ = [
    "OUTCOMES_TRIED",
    "Backtest",
    "Choice",
    "Corrections",
    "EarlierRun",
    "GuardedEstimates",
    "GuardedEstimator",
    "OutcomeTrial",
    "by_model_quantile",
    "corrected_memory",
    "corrections_data",
    "guarded_memory",
    "learn_corrections",
    "shipped_corrections",
    "trial_without_the_model",
    "try_outcomes",
]
