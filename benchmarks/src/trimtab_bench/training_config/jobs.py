"""Our seven training jobs: seen, unseen, with trials, and what the answers rest on, as one section."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trimtab.predict.jobs.training import DataSet, forest_importance, our_importance
from trimtab_bench.goals import goals_table
from trimtab_bench.kept import Key, Part
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import Table
from trimtab_bench.training_config import seen, trials, unseen
from trimtab_bench.training_config.goals import goals

_SHOWN = 10  # features of a table


def parts(options: BenchOptions, data: DataSet) -> list[Part]:
    """All that is measured, each by itself."""
    return [
        *seen.parts(options, data),
        *unseen.parts(options, data),
        *trials.parts(options, data),
        *_importance(data),
    ]


def _importance(data: DataSet) -> Iterator[Part]:
    for objective in seen.OBJECTIVES:
        for kind, classify in (("value", False), ("top", True)):
            run = partial(_forest, data, objective, classify)
            yield Part(("importance", "forest", objective, kind), run)
    yield Part(("importance", "trimtab"), partial(_ours, data))


def _forest(data: DataSet, objective: str, classify: bool) -> dict[str, Any]:
    found = forest_importance(data.points, data.local, objective, classify)
    return {"features": dict(found.features), "groups": dict(found.groups)}


def _ours(data: DataSet) -> dict[str, Any]:
    return {"features": dict(our_importance(data.points, data.local).features)}


def figures(found: Mapping[Key, Any], data: DataSet) -> dict[str, Any]:
    """`seen`, `unseen`, `importance` and `goals`."""
    with_trials = trials.figures(found)
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


_FOREST = ("importance", "forest")


def tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    """All of them, the goals last."""
    yield from seen.tables(figures["seen"])
    yield from unseen.tables(figures["unseen"])
    yield from trials.tables({"methods": figures["unseen"]["after_trials"]})
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
