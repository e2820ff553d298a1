"""Configurations of distributed training: our seven jobs, seen and unseen, and searches of public data."""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import ge, le
from pathlib import Path
from typing import Any

from trimtab.predict.jobs import training_data, training_importance, training_model
from trimtab.predict.jobs.training_data import SHIPPED, DataSet, read_data
from trimtab.predict.jobs.training_importance import forest_importance, model_importance
from trimtab.tune import job_forecast, searcher
from trimtab_bench.harness import (
    BenchGoal,
    BenchOptions,
    BenchPart,
    BenchResult,
    Kept,
    Key,
    ResultTable,
    finish,
    goals_table,
    judged,
    two_processes,
)
from trimtab_bench.training_config import rivals, seen, thesis, unseen
from trimtab_bench.training_config.search import search_section
from trimtab_bench.training_config.thesis import top_importance

_SHOWN = 10  # features of a table
_BOUNDS = {
    ("seen", "cost_rmse_over_mean"): (le, 0.12),
    ("seen", "time_rmse_over_mean"): (le, 0.12),
    ("unseen", "regret_0"): (le, 1.10),
    ("unseen", "regret_3"): (le, 1.03),
    ("seen", "cost_r2"): (ge, 0.98),
    ("seen", "time_r2"): (ge, 0.98),
    ("unseen", "auc_cost"): (ge, 0.95),
    ("unseen", "auc_time"): (ge, 0.95),
}


def run(options: BenchOptions) -> BenchResult:
    data = read_data()
    parts = job_parts(options, data)
    learning = (seen, unseen, rivals, thesis, searcher, job_forecast)
    modules = (*learning, training_data, training_importance, training_model)
    files = [*(Path(str(module.__file__)) for module in modules), *sorted(SHIPPED.glob("points.*"))]
    kept = Kept.of("training-config", (options.quick, options.seed), files)
    with two_processes() as pool, options.progress(len(parts), "learning and asking") as announce:
        figures = job_figures(finish(parts, kept, announce, pool), data)
    figures["points"].update(seen.data_figures(data))
    searched, search_tables = search_section(options)
    baselines = {
        "seen": figures["seen"]["methods"],
        "unseen": figures["unseen"]["methods"],
        "after_trials": figures["unseen"]["after_trials"],
    }
    return BenchResult(
        "training-config",
        {**figures, **searched},
        baselines,
        {"seen": seen.PUBLISHED, "unseen.auc": unseen.PUBLISHED},
        options.seed,
        (seen.data_table(figures["points"]), *job_tables(figures), *search_tables),
    )


def job_parts(options: BenchOptions, data: DataSet) -> list[BenchPart]:
    """Parts of all sections on our own jobs."""
    importance = {
        ("importance", "forest", objective, kind): partial(_forest, data, objective, kind == "top")
        for objective in seen.OBJECTIVES
        for kind in ("value", "top")
    }
    return [
        *seen.parts(options, data),
        *unseen.parts(options, data),
        *unseen.trial_parts(options, data),
        *(BenchPart(key, run) for key, run in importance.items()),
        BenchPart(("importance", "trimtab"), partial(_model, data)),
    ]


def _forest(data: DataSet, objective: str, classify: bool) -> dict[str, Any]:
    measure = top_importance if classify else forest_importance
    importance = measure(data.points, data.local, objective)
    return {"features": dict(importance.features), "groups": dict(importance.groups)}


def _model(data: DataSet) -> dict[str, Any]:
    return {"features": dict(model_importance(data.points, data.local).features)}


def job_figures(results: Mapping[Key, Any], data: DataSet) -> dict[str, Any]:
    """`points`, `seen`, `unseen`, `importance` and `goals`."""
    after_trials = unseen.trial_figures(results)
    forest = ("importance", "forest")
    figures: dict[str, Any] = {
        "points": {"measured": len(data.points), "ok": int(data.points.ok.sum())},
        "seen": seen.figures(results),
        "unseen": {
            **unseen.figures(results),
            **{name: after_trials[name] for name in ("regret_3", "regret_3_time")},
            "after_trials": after_trials["methods"],
        },
        "importance": {
            "forest": {f"{key[2]}_{key[3]}": result for key, result in results.items() if key[:2] == forest},
            "trimtab": results["importance", "trimtab"],
        },
    }
    return {**figures, "goals": goals(figures)}


def job_tables(figures: Mapping[str, Any]) -> Iterator[ResultTable]:
    """All tables on our own jobs, the goals last."""
    yield from seen.tables(figures["seen"])
    yield from unseen.tables(figures["unseen"])
    yield from unseen.trial_tables({"methods": figures["unseen"]["after_trials"]})
    kinds = {"value": "random forest of", "top": "random forest of top configurations by"}
    for name, result in figures["importance"]["forest"].items():
        objective, _, kind = name.partition("_")
        title = f"What matters, {kinds[kind]} {objective}"
        rows = [(feature, f"{part:.1%}") for feature, part in [*result["features"].items()][:_SHOWN]]
        yield ResultTable(f"{title}: features", ("feature", "part"), rows)
        groups = [(group, f"{part:.1%}") for group, part in result["groups"].items()]
        yield ResultTable(f"{title}: groups", ("group", "part"), groups)
    shuffled = figures["importance"]["trimtab"]["features"]
    rows = [(name, f"{points:.1f}") for name, points in shuffled.items()]
    heads = ("coordinate", "points of error when shuffled")
    yield ResultTable("What matters, trimtab: a step's seconds of a job left out", heads, rows)
    yield goals_table(figures["goals"], "Goals on our own jobs")


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return judged(
        BenchGoal(f"{section}.{name}", figures[section][name], compare, bound)
        for (section, name), (compare, bound) in _BOUNDS.items()
    )
