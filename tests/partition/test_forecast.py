"""Step time, memory and limits of a plan."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.partition import Devices, Graph, Plan, Recipe, Stage, evaluate
from trimtab.partition.forecast import Slot, StageTimes, cost_of, stage_times, timeline
from trimtab.partition.node_times import CostAssumptions

TIMES = st.floats(0.1, 5.0)


def _end(slots: tuple[Slot, ...]) -> float:
    return max(slot.end for slot in slots)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 5), (4, 1), (4, 8), (3, 2)])
def test_equal_stages_take_what_the_textbook_says(schedule: str, stages: int, microbatches: int) -> None:
    times = StageTimes([1.0] * stages, [2.0] * stages, [0.0] * (stages - 1), list(range(stages)))
    slots = timeline(times, microbatches, schedule)
    assert _end(slots) == pytest.approx(3.0 * (microbatches + stages - 1))


def test_one_by_one_holds_fewer_micro_batches_than_gpipe() -> None:
    times = StageTimes([1.0] * 4, [2.0] * 4, [0.0] * 3, list(range(4)))
    held = {name: _most_in_flight(timeline(times, 16, name), 0) for name in ("gpipe", "1f1b")}
    assert held == {"gpipe": 16, "1f1b": 4}


def _most_in_flight(slots: tuple[Slot, ...], stage: int) -> int:
    events = [
        (slot.start, 1) if slot.phase == "forward" else (slot.end, -1)
        for slot in slots
        if slot.stage == stage
    ]
    held = most = 0
    for _, change in sorted(events, key=lambda event: (event[0], event[1])):
        held += change
        most = max(most, held)
    return most


@given(
    forward=st.lists(TIMES, min_size=1, max_size=5),
    backward=TIMES,
    hand=st.floats(0.0, 3.0),
    microbatches=st.integers(1, 6),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    shared=st.booleans(),
)
def test_nobody_does_two_things_at_once_or_works_on_what_has_not_arrived(
    forward: list[float], backward: float, hand: float, microbatches: int, schedule: str, shared: bool
) -> None:
    count = len(forward)
    device = [stage % 2 for stage in range(count)] if shared else list(range(count))
    times = StageTimes(forward, [backward] * count, [hand] * (count - 1), device)
    slots = timeline(times, microbatches, schedule)
    assert len(slots) == 2 * count * microbatches
    for who in set(device):
        mine = sorted((slot.start, slot.end) for slot in slots if device[slot.stage] == who)
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(mine))
    by_key = {(slot.stage, slot.phase, slot.microbatch): slot for slot in slots}
    for slot in slots:
        if slot.phase == "forward" and slot.stage:
            before = by_key[slot.stage - 1, "forward", slot.microbatch]
        elif slot.phase == "backward" and slot.stage < count - 1:
            before = by_key[slot.stage + 1, "backward", slot.microbatch]
        else:
            continue
        assert slot.start >= before.end + hand - 1e-9


def test_a_slow_link_sets_the_pace_like_a_slow_stage() -> None:
    times = StageTimes([1.0, 1.0], [1.0, 1.0], [10.0], [0, 1])
    there, last_forward = 1 + 5 * 10, 1
    back = 1 + 5 * 10  # the first gradient is sent after one backward pass
    assert _end(timeline(times, 5, "gpipe")) == pytest.approx(there + last_forward + back + 1)


def test_inference_only_goes_forward() -> None:
    slots = timeline(StageTimes([1.0, 2.0], [9.0, 9.0], [0.5], [0, 1]), 3, "1f1b", training=False)
    assert {slot.phase for slot in slots} == {"forward"}
    assert _end(slots) == pytest.approx(1 + 0.5 + 3 * 2)


MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
RECIPE = Recipe(32)


@pytest.mark.parametrize("microbatches", [1, 4, 16])
def test_playing_a_plan_takes_about_what_the_formula_says(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices, microbatches: int
) -> None:
    graph = make_graph(blocks=8, width=1024, tokens=256)
    plan = chain_plan(graph, four, microbatches=microbatches, share=32 // microbatches)
    forecast = evaluate(graph, four, RECIPE, plan)
    assert forecast.seconds == pytest.approx(cost_of(graph, four, RECIPE, plan).seconds, rel=0.15)
    assert forecast.low < forecast.seconds < forecast.high


def test_memory_adds_up_and_what_is_left_is_idle(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    forecast = evaluate(graph, four, RECIPE, chain_plan(graph, four))
    weights = sum(use.weights for use in forecast.uses)
    assert weights == pytest.approx(4 * graph.parameters.sum())
    assert sum(use.optimizer for use in forecast.uses) == pytest.approx(2 * weights)
    left = four.memory.sum() - sum(use.memory for use in forecast.uses)
    assert forecast.idle == pytest.approx(left)
    assert forecast.fits
    assert forecast.throughput == forecast.batch / forecast.seconds


def test_a_plan_that_is_too_large_says_by_how_much(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    plan = chain_plan(graph, four)
    need = max(use.memory for use in evaluate(graph, four, RECIPE, plan).uses)
    small = Devices(tuple(replace(d, memory=need / 2) for d in four.devices), four.bandwidth, four.latency)
    forecast = evaluate(graph, small, RECIPE, plan)
    assert not forecast.fits
    assert forecast.throughput == 0.0
    assert forecast.short == pytest.approx(need - 0.94 * need / 2)


def test_a_device_may_run_several_stages(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    nodes = tuple(range(len(graph)))
    once = Plan((Stage(nodes, ((0,),)),), (8,), 4)
    thrice = Plan((Stage(nodes[:4], ((0,),)), Stage(nodes[4:9], ((1,),)), Stage(nodes[9:], ((0,),))), (8,), 4)
    forecast = evaluate(graph, four, RECIPE, thrice)
    assert {use.device: use.stages for use in forecast.uses} == {0: (0, 2), 1: (1,)}
    assert forecast.seconds > 0.3 * evaluate(graph, four, RECIPE, once).seconds
    times = stage_times(cost_of(graph, four, RECIPE, thrice))
    assert len(timeline(times, thrice.microbatches, thrice.schedule)) == 2 * 3 * 4


def test_what_a_run_showed_corrects_the_times(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    plan = chain_plan(graph, four)
    kinds = {device.kind for device in four.devices}
    twice = CostAssumptions(correction=tuple((kind, 2.0, 2.0) for kind in kinds))
    before, after = evaluate(graph, four, RECIPE, plan), evaluate(graph, four, RECIPE, plan, twice)
    assert after.stage_forward == pytest.approx([2 * item for item in before.stage_forward])


def test_a_plan_that_runs_against_the_graph_is_refused(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    nodes = tuple(range(len(graph)))
    with pytest.raises(BadInputError, match=r"down_0.*up_0"):
        evaluate(graph, four, RECIPE, Plan((Stage(nodes[3:], ((0,),)), Stage(nodes[:3], ((1,),))), (8,), 4))
    with pytest.raises(BadInputError, match=graph.names[-1]):
        evaluate(graph, four, RECIPE, Plan((Stage(nodes[:-1], ((0,),)),), (8,), 4))
