"""What an outcome on one GPU says about others: ResNet-50 on three old ones, measured by others.

Gavel's throughputs (`gpu-throughput` in the folder of data) hold a model that is among the bundled ones, on
devices whose constants are borrowed. One run is taken as an earlier outcome, and the others are estimated.
"""

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict import EarlierRun, GuardedEstimator, Placements
from trimtab_bench.result import Table
from trimtab_bench.search import resnet50_profile

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
    for name, found in errors.items():
        if found:
            rule, guarded, held = np.array(found, dtype=float).T
            for who, error in (("_rule", rule), ("", guarded)):
                figures[f"transfer_{name}{who}_median_ape"] = float(np.median(error))
                figures[f"transfer_{name}{who}_mean_ape"] = float(error.mean())
            figures[f"transfer_{name}_held"] = float(held.mean())
    return figures


def transfer_tables(figures: dict[str, Any]) -> tuple[Table, ...]:
    """The figures beside one another."""
    lines = []
    for name, words in (("same_gpu", "other batch sizes on the same GPU"), ("other_gpu", "other GPUs")):
        if f"transfer_{name}_held" in figures:
            pairs = (
                f"{figures[f'transfer_{name}{who}_median_ape']:.1%} /"
                f" {figures[f'transfer_{name}{who}_mean_ape']:.1%}"
                for who in ("_rule", "")
            )
            lines.append((words, *pairs, f"{figures[f'transfer_{name}_held']:.1%}"))
    heads = ("", "rule", "guarded", "90 % range held")
    title = "ResNet-50 on K80, P100 and V100, one outcome known, median / mean error"
    return (Table(title, heads, tuple(lines)),) if lines else ()


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
    """Absolute percentage errors of rule and guarded answer, and whether the latter's range held."""
    expected = GuardedEstimator(resnet50_profile()).estimate(_placed([known])).rule.total[0]
    ratio = known.seconds / float(expected)
    outcome = EarlierRun(known.device, 1.0, known.batch, "fp32", ratio, 0.0)
    found = GuardedEstimator(resnet50_profile(), None, [outcome]).estimate(_placed(others))
    chosen, truth = found.chosen, np.array([r.seconds for r in others])
    held = (chosen.total * chosen.low <= truth) & (truth <= chosen.total * chosen.high)
    rule, guarded = (np.abs(e.total / truth - 1).tolist() for e in (found.rule, chosen))
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
