"""What earlier outcomes of a model do for its next estimates: the rule beside the guarded answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict import (
    OUTCOMES_TRIED,
    MeasuredStep,
    OthersWithout,
    OutcomeTrial,
    shipped_corrections,
    trial_without_the_model,
    try_outcomes,
)
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import Table

Array = NDArray[np.float64]
Trials = Mapping[tuple[int, bool], OutcomeTrial]


def outcome_trials(
    rows: Sequence[MeasuredStep], seconds: Array, without: OthersWithout | None, options: BenchOptions
) -> Trials:
    """By number of earlier outcomes, and whether one more was of a run stopped early.

    `seconds` are the rule's; with `--shipped`, the spread that comes with the constants is used.
    """
    learned = shipped_corrections() if options.shipped else None
    found = {}
    for shots, spoil in ((shots, spoil) for spoil in (False, True) for shots in OUTCOMES_TRIED):
        if learned is not None:
            shipped = dict.fromkeys((r.name for r in rows), learned.spread)
            trial = try_outcomes(rows, seconds, shipped, shots, options.seed, spoil)
        elif without is not None:
            trial = trial_without_the_model(rows, seconds, without, shots, options.seed, spoil)
        else:
            continue
        if trial.models.size:
            found[shots, spoil] = trial
    return found


def outcome_figures(trials: Trials) -> dict[str, Any]:
    """Errors of both answers, and how often the guarded one's range held."""
    figures: dict[str, Any] = {}
    for (shots, spoil), trial in trials.items():
        name = _name(shots, spoil)
        for who, ratio in (("", trial.guarded), ("_rule", trial.rule)):
            error = np.abs(ratio - 1)
            figures[f"{name}{who}_median_ape"] = float(np.median(error))
            figures[f"{name}{who}_mean_ape"] = float(error.mean())
        if len(set(trial.models)) > 1:
            figures[f"{name}_coverage90"] = trial.coverage()
    return figures


def guard_table(figures: Mapping[str, Any], trials: Trials) -> Table:
    """The rule beside the guarded answer."""

    def errors(name: str) -> str:
        return f"{figures[f'{name}_median_ape']:.1%} / {figures[f'{name}_mean_ape']:.1%}"

    lines = [("peak memory", errors("peak_memory_rule"), errors("peak_memory"), "")]
    for shots, spoil in trials:
        name = _name(shots, spoil)
        what = f"training step, {shots} earlier outcome{'s' if shots > 1 else ''}"
        what += " and one of a run stopped early" if spoil else ""
        held = figures.get(f"{name}_coverage90")
        lines.append((what, errors(f"{name}_rule"), errors(name), "" if held is None else f"{held:.1%}"))
    heads = ("", "rule", "guarded", "90 % range held")
    return Table("Rule and guarded answer, median / mean error", heads, tuple(lines))


def _name(shots: int, spoil: bool) -> str:
    return f"train_step_outcomes{shots}{'_and_a_stopped_one' if spoil else ''}"
