"""Configurations of distributed training: our seven jobs, seen and unseen, and searches of others' files."""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from operator import ge, le
from typing import Any

from trimtab.predict.jobs import training_data, training_importance, training_model
from trimtab.predict.jobs.training_data import SHIPPED, DataSet, read_data
from trimtab.predict.jobs.training_importance import forest_importance, model_importance
from trimtab.tune import job_forecast, searcher
from trimtab_bench.harness import (
    BenchOptions,
    BenchResult,
    Goal,
    Kept,
    Key,
    Part,
    Table,
    done_side_by_side,
    goals_table,
    judged,
)
from trimtab_bench.training_config import rivals, seen, thesis, unseen
from trimtab_bench.training_config.search import search_section
from trimtab_bench.training_config.thesis import top_importance

_SHOWN = 10  # features of a table
_FOREST = ("importance", "forest")
_WANTED = {
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
    """All sections; finished parts are kept."""
    data = read_data()
    parts = job_parts(options, data)
    kept = Kept.of("training-config", _made_from(options))
    with options.progress(len(parts), "learning and asking") as tell:
        figures = job_figures(done_side_by_side(parts, kept, tell), data)
    figures["points"].update(seen.data_figures(data))
    searched, search_tables = search_section(options)
    published = {"seen": seen.PUBLISHED, "unseen.auc": unseen.PUBLISHED}
    baselines = {
        "seen": figures["seen"]["methods"],
        "unseen": figures["unseen"]["methods"],
        "after_trials": figures["unseen"]["after_trials"],
    }
    return BenchResult(
        "training-config",
        {**figures, **searched},
        baselines,
        published,
        options.seed,
        (seen.data_table(figures["points"]), *job_tables(figures), *search_tables),
    )


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """The options, the data, and the code that learns and searches."""
    yield repr((options.quick, options.seed)).encode()
    searching = (seen, unseen, rivals, thesis, searcher, job_forecast)
    for module in (*searching, training_data, training_importance, training_model):
        yield inspect.getsource(module).encode()
    for path in sorted(SHIPPED.glob("points.*")):
        yield path.read_bytes()


def job_parts(options: BenchOptions, data: DataSet) -> list[Part]:
    """All that is measured, each by itself."""
    return [
        *seen.parts(options, data),
        *unseen.parts(options, data),
        *unseen.trial_parts(options, data),
        *_importance(data),
    ]


def _importance(data: DataSet) -> Iterator[Part]:
    for objective in seen.OBJECTIVES:
        for kind, classify in (("value", False), ("top", True)):
            run = partial(_forest, data, objective, classify)
            yield Part(("importance", "forest", objective, kind), run)
    yield Part(("importance", "trimtab"), partial(_ours, data))


def _forest(data: DataSet, objective: str, classify: bool) -> dict[str, Any]:
    if classify:
        found = top_importance(data.points, data.local, objective)
    else:
        found = forest_importance(data.points, data.local, objective)
    return {"features": dict(found.features), "groups": dict(found.groups)}


def _ours(data: DataSet) -> dict[str, Any]:
    return {"features": dict(model_importance(data.points, data.local).features)}


def job_figures(found: Mapping[Key, Any], data: DataSet) -> dict[str, Any]:
    """`seen`, `unseen`, `importance` and `goals`."""
    with_trials = unseen.trial_figures(found)
    after = {"after_trials": with_trials["methods"]}
    reached = {name: with_trials[name] for name in ("regret_3", "regret_3_time")}
    whole: dict[str, Any] = {
        "points": {"measured": len(data.points), "ok": int(data.points.ok.sum())},
        "seen": seen.figures(found),
        "unseen": {**unseen.figures(found), **reached, **after},
        "importance": {
            "forest": {f"{key[2]}_{key[3]}": each for key, each in found.items() if key[:2] == _FOREST},
            "trimtab": found["importance", "trimtab"],
        },
    }
    return {**whole, "goals": goals(whole)}


def job_tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    """All of them, the goals last."""
    yield from seen.tables(figures["seen"])
    yield from unseen.tables(figures["unseen"])
    yield from unseen.trial_tables({"methods": figures["unseen"]["after_trials"]})
    yield from _importance_tables(figures["importance"])
    yield goals_table(figures["goals"], "Goals on our own jobs")


def _importance_tables(importance: Mapping[str, Any]) -> Iterator[Table]:
    kinds = {"value": "random forest of", "top": "random forest of top configurations by"}
    for name, each in importance["forest"].items():
        objective, _, kind = name.partition("_")
        rows = tuple((feature, f"{part:.1%}") for feature, part in [*each["features"].items()][:_SHOWN])
        yield Table(f"What matters, {kinds[kind]} {objective}: features", ("feature", "part"), rows)
        groups = tuple((group, f"{part:.1%}") for group, part in each["groups"].items())
        yield Table(f"What matters, {kinds[kind]} {objective}: groups", ("group", "part"), groups)
    rows = tuple((name, f"{points:.1f}") for name, points in importance["trimtab"]["features"].items())
    heads = ("coordinate", "points of error when shuffled")
    yield Table("What matters, trimtab: a step's seconds of a job left out", heads, rows)


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(
        Goal(f"{section}.{name}", figures[section][name], compare, wanted)
        for (section, name), (compare, wanted) in _WANTED.items()
    )
