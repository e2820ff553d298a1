"""A plan in the ledger: a measured step says how far off it was."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import Outcome, SimulatedClock
from trimtab.partition import (
    Devices,
    Graph,
    Plan,
    Recipe,
    SearchSettings,
    Solution,
    decision,
    evaluate,
    solve,
)
from trimtab.store import compare, open_store


def test_the_ledger_keeps_a_plan_and_a_step_judges_it(
    make_graph: Callable[..., Graph], four: Devices, chain_plan: Callable[..., Plan]
) -> None:
    graph = make_graph()
    plan = chain_plan(graph, four)
    recipe = Recipe(plan.batch, "bf16")
    forecast = evaluate(graph, four, recipe, plan)
    others = (
        ("slower", replace(forecast, seconds=2 * forecast.seconds)),
        ("no", replace(forecast, fits=False)),
    )
    result = Solution(plan, forecast, graph, four, recipe, "ours", ("it is even",), others, 0.1)
    made = decision(result, SimulatedClock(7.0))
    with open_store() as store:
        store.ledger.record(made)
        kept = store.ledger.get(made.id)
    assert kept == made
    assert (kept.kind, kept.subject, kept.created) == ("partition", "tiny", 7.0)
    assert kept.action["plan"] == "4 stages, 4 micro-batches of 2, 1f1b"
    assert [answer.who for answer in kept.alternatives] == ["slower"]
    assert sum(c.value for c in kept.contributions) == pytest.approx(forecast.seconds)
    judged = compare(kept, Outcome(kept.id, 8.0, {"time": forecast.seconds / 2}))
    assert judged[0].error == pytest.approx(1.0)


def test_a_placement_that_is_better_is_what_is_decided(branches: Graph, pair: Devices) -> None:
    result = solve(branches, pair, Recipe(8), SearchSettings(objective="latency", pipeline_only=True))
    assert result.placement is not None
    made, in_stages = decision(result), decision(replace(result, placement=None))
    time = made.estimates["time"]
    assert time.value == result.placement.latency < in_stages.estimates["time"].value
    assert time.low <= time.value <= time.high
    assert str(made.action["plan"]).startswith("branches side by side on 2 devices")
    assert made.action["devices"] == "T4:0, T4:1"
