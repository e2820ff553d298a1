"""Earlier outcomes of a model improve its next estimates: errors of the rule and of the guarded answer.

Trials draw outcomes from the bundled steps. The transfer to other GPUs is measured on Gavel's throughputs
(`gpu-throughput` in the folder of data), which hold ResNet-50, a bundled model, on three old devices whose
constants are borrowed: one run is taken as an earlier outcome, and the others are estimated.
"""

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict import (
    OUTCOMES_TRIED,
    EarlierRun,
    GuardedEstimator,
    MeasuredStep,
    OutcomeTrial,
    Placements,
    Unseen,
    shipped_corrections,
    spreads_without_the_model,
    try_outcomes,
)
from trimtab_bench.harness import BenchOptions, ResultTable
from trimtab_bench.search import resnet50_profile

Array = NDArray[np.float64]
Trials = Mapping[tuple[int, bool], OutcomeTrial]


def ape_figures(name: str, error: Array) -> dict[str, float]:
    """Median and mean of absolute percentage errors."""
    return {f"{name}_median_ape": float(np.median(error)), f"{name}_mean_ape": float(error.mean())}


def ape_cell(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures[f'{name}_median_ape']:.1%} / {figures[f'{name}_mean_ape']:.1%}"


def outcome_trials(
    rows: Sequence[MeasuredStep], seconds: Array, without: Unseen | None, options: BenchOptions
) -> Trials:
    """By number of earlier outcomes, and whether one more was of a run stopped early.

    `seconds` are the rule's; with `--shipped`, the spread that comes with the constants is used.
    """
    learned = shipped_corrections() if options.shipped else None
    if learned is not None:
        spreads = dict.fromkeys((r.name for r in rows), learned.spread)
    elif without is not None:
        spreads = spreads_without_the_model(rows, without)
    else:
        return {}
    results = {}
    for shots, spoil in ((shots, spoil) for spoil in (False, True) for shots in OUTCOMES_TRIED):
        trial = try_outcomes(rows, seconds, spreads, shots, options.seed, spoil)
        if trial.models.size:
            results[shots, spoil] = trial
    return results


def outcome_figures(trials: Trials) -> dict[str, Any]:
    """Errors of both answers, and the coverage of the guarded one's interval."""
    figures: dict[str, Any] = {}
    for (shots, spoil), trial in trials.items():
        name = _name(shots, spoil)
        for suffix, ratio in (("", trial.guarded), ("_rule", trial.rule)):
            figures |= ape_figures(f"{name}{suffix}", np.abs(ratio - 1))
        if len(set(trial.models)) > 1:
            figures[f"{name}_coverage90"] = trial.coverage()
    return figures


def guard_table(figures: Mapping[str, Any], trials: Trials) -> ResultTable:
    """Errors of the rule and of the guarded answer."""
    rows = [("peak memory", ape_cell(figures, "peak_memory_rule"), ape_cell(figures, "peak_memory"), "")]
    for shots, spoil in trials:
        name = _name(shots, spoil)
        label = f"training step, {shots} earlier outcome{'s' if shots > 1 else ''}"
        label += " and one of a run stopped early" if spoil else ""
        held = figures.get(f"{name}_coverage90")
        cells = (ape_cell(figures, f"{name}_rule"), ape_cell(figures, name))
        rows.append((label, *cells, "" if held is None else f"{held:.1%}"))
    return ResultTable("Rule and guarded answer, median / mean error", _HEADS, rows)


def _name(shots: int, spoil: bool) -> str:
    return f"train_step_outcomes{shots}{'_and_a_stopped_one' if spoil else ''}"


_HEADS = ("", "rule", "guarded", "90 % range held")
_FILE = "gpu-throughput/gavel_throughputs.csv.gz"


@dataclass(frozen=True, slots=True)
class _Run:
    device: str
    batch: float
    seconds: float


def transfer_figures(folder: Path) -> dict[str, Any]:
    """Errors of rule and guarded answer on the run's own GPU and on others; nothing without the data."""
    runs = _runs(folder / _FILE) if (folder / _FILE).is_file() else []
    errors: dict[str, list[tuple[float, float, bool]]] = {"same_gpu": [], "other_gpu": []}
    for known in runs:
        others = [r for r in runs if r is not known]
        for other, error in zip(others, _errors(known, others), strict=True):
            errors["same_gpu" if other.device == known.device else "other_gpu"].append(error)
    figures: dict[str, Any] = {}
    for name, results in errors.items():
        if results:
            rule, guarded, held = np.array(results, dtype=float).T
            figures |= ape_figures(f"transfer_{name}_rule", rule) | ape_figures(f"transfer_{name}", guarded)
            figures[f"transfer_{name}_held"] = float(held.mean())
    return figures


def transfer_tables(figures: dict[str, Any]) -> tuple[ResultTable, ...]:
    """One table of the transfer's figures; none without them."""
    places = {"same_gpu": "other batch sizes on the same GPU", "other_gpu": "other GPUs"}
    rows = [
        (
            words,
            ape_cell(figures, f"transfer_{name}_rule"),
            ape_cell(figures, f"transfer_{name}"),
            f"{figures[f'transfer_{name}_held']:.1%}",
        )
        for name, words in places.items()
        if f"transfer_{name}_held" in figures
    ]
    title = "ResNet-50 on K80, P100 and V100, one outcome known, median / mean error"
    return (ResultTable(title, _HEADS, rows),) if rows else ()


def _runs(file: Path) -> list[_Run]:
    """ResNet-50 alone on one GPU."""
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as source:
            return [
                _Run(row["accelerator"].upper(), float(row["batch_size"]), 1 / float(row["steps_per_s"]))
                for row in csv.DictReader(source)
                if (row["source"], row["model"], row["other_model"]) == ("physical_cluster", "ResNet-50", "")
                and float(row["num_gpus"]) == 1
                and float(row["steps_per_s"]) > 0
                and row["consolidated"] == "True"
            ]
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise BadInputError(f"{file} does not hold Gavel's throughputs: {error}") from None


def _errors(known: _Run, others: Sequence[_Run]) -> list[tuple[float, float, bool]]:
    """Absolute percentage errors of rule and guarded answer, and whether the latter's interval held."""
    expected = GuardedEstimator(resnet50_profile()).estimate(_placed([known])).rule.total[0]
    ratio = known.seconds / float(expected)
    outcome = EarlierRun(known.device, 1.0, known.batch, "fp32", ratio, 0.0)
    results = GuardedEstimator(resnet50_profile(), None, [outcome]).estimate(_placed(others))
    chosen, truth = results.chosen, np.array([r.seconds for r in others])
    held = (chosen.total * chosen.low <= truth) & (truth <= chosen.total * chosen.high)
    rule, guarded = (np.abs(e.total / truth - 1).tolist() for e in (results.rule, chosen))
    return list(zip(rule, guarded, held.tolist(), strict=True))


def _placed(runs: Sequence[_Run]) -> Placements:
    names = tuple(dict.fromkeys(r.device for r in runs))
    one = np.ones(len(runs))
    return Placements(
        names,
        np.array([names.index(r.device) for r in runs], dtype=np.intp),
        per_node=one,
        nodes=one,
        cores=8 * one,
        memory=64e9 * one,
        network=1e9 * one,
        batch=np.array([r.batch for r in runs]),
    )
