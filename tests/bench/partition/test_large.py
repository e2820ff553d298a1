"""Cases of whole models, and what is made of everybody's throughput."""

from typing import Any

import pytest
from trimtab_bench.partition.large import (
    EQUAL,
    HYBRID,
    METHODS,
    PIPELINE,
    TWO_TIER,
    UNEQUAL,
    DeviceSet,
    LargeCase,
    beaten,
    cases,
    command_figures,
    fits,
    idler,
    large_figures,
    over_accelerate,
    solving_seconds,
)
from trimtab_bench.partition.models import MODELS

from trimtab.core import TrimtabError
from trimtab.partition import RIVALS, Recipe, devices_of


def test_every_model_is_on_equal_two_tier_and_unequal_devices() -> None:
    everything = list(cases())
    assert {each.model for each in everything} == set(MODELS)
    for model in MODELS:
        assert {each.on.kind for each in everything if each.model == model} == {EQUAL, TWO_TIER, UNEQUAL}
    assert len({each.name for each in everything}) == len(everything)
    for each in {each.on.text: each for each in everything}.values():
        kinds = len(devices_of(each.on.text, each.on.network).kinds)
        assert {EQUAL: kinds == 1, TWO_TIER: kinds == 2, UNEQUAL: kinds > 2}[each.on.kind]


def test_what_a_method_makes_of_a_case() -> None:
    on = DeviceSet("a100-40:1,t4:1", "25Gbit", TWO_TIER)
    case = LargeCase("unet", Recipe(16), on)
    ours, alone = (large_figures(case, method) for method in (PIPELINE, "single"))
    assert ours["throughput"] >= alone["throughput"] > 0.0
    assert (alone["devices"], alone["stages"]) == (1, 1)
    too_large = large_figures(LargeCase("unet", Recipe(8191), on), "single")
    assert (too_large["throughput"], too_large["fits"]) == (0.0, False)


def _by(throughputs: dict[str, float], idle: dict[str, float] | None = None) -> dict[str, Any]:
    return {
        name: {"throughput": each, "fits": each > 0.0, "idle_gib": (idle or {}).get(name, 10.0)}
        for name, each in (dict.fromkeys(METHODS, 1.0) | throughputs).items()
    }


def test_accelerates_better_map_counts_where_devices_are_unequal() -> None:
    large = {
        "same": _by({HYBRID: 50.0}),
        "two": _by({HYBRID: 8.0, "accelerate-balanced": 2.0, "accelerate-sequential": 4.0}),
        "many": _by({HYBRID: 8.0, "accelerate-balanced": 1.0, "accelerate-sequential": 0.0}),
        "none": _by({HYBRID: 8.0, "accelerate-balanced": 0.0, "accelerate-sequential": 0.0}),
        "lost": _by({HYBRID: 0.0}),
    }
    kinds = {"same": EQUAL, "two": TWO_TIER, "many": UNEQUAL, "none": UNEQUAL, "lost": TWO_TIER}
    found = over_accelerate(large, kinds, HYBRID)
    assert found["geomean"] == pytest.approx(4.0)
    assert found["least"] == pytest.approx(2.0)
    assert (found["cases"], found["accelerate_does_not_fit"], found["ours_does_not_fit"]) == (4, 1, 1)


def test_rivals_that_are_faster_or_leave_less_idle_are_named() -> None:
    assert beaten({"a": _by({HYBRID: 2.0, "metis": 2.1})}, HYBRID) == ["a: metis"]
    assert beaten({"a": _by({HYBRID: 2.0, "metis": 2.0})}, HYBRID) == []
    same = {"a": _by({HYBRID: 2.0, "equal": 1.99}, {"equal": 5.0}), "b": _by({HYBRID: 2.0}, {"equal": 5.0})}
    assert idler(same, HYBRID) == ["a: equal"]


def test_who_fits_where_is_counted() -> None:
    large = {"a": _by({"single": 0.0}), "b": _by({})}
    assert fits(large, METHODS)["single"] == 1
    assert all(fits(large, METHODS)[name] == 2 for name in RIVALS if name != "single")


def test_a_random_graph_is_split() -> None:
    found = solving_seconds(60, seed=0, fleet="v100:2,t4:2")
    assert found["seconds"] > 0.0
    assert found["fits"] == 1.0


def test_a_model_is_split_in_a_fresh_process() -> None:
    found = command_figures("vgg16", devices="t4:2")
    assert found["seconds"] > 0.0
    assert 0.05 < found["peak_gib"] < 8.0


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(TrimtabError, match="no_such_model"):
        command_figures("no_such_model", devices="t4:2")
