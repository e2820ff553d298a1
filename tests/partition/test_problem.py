"""What a cut takes, against sums made by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trimtab.partition import Devices, Graph, Layout, Recipe, devices_of
from trimtab.partition.problem import CutProblem, bytes_per_weight, problem_of, usable_memory

MakeGraph = Callable[..., Graph]
SHARES = (8,)


def _problem(graph: Graph, devices: Devices, recipe: Recipe | None = None, **options: object) -> CutProblem:
    layout = Layout(SHARES, **options)  # type: ignore[arg-type]
    rows = tuple(((device,),) for device in range(len(devices)))
    return problem_of(graph, devices, recipe or Recipe(8 * layout.microbatches), layout, rows)


def test_a_step_is_the_first_micro_batch_and_the_slowest_stage_for_the_others(
    make_graph: MakeGraph, four: Devices
) -> None:
    graph = make_graph()
    problem = _problem(graph, four, microbatches=4)
    stage_of = (np.arange(len(graph)) >= 7).astype(np.int64)
    loads = [
        float((problem.forward + problem.backward)[row, stage_of == stage].sum())
        for stage, row in enumerate((0, 2))
    ]
    once = [
        float(problem.once[row, stage_of == stage].sum()) + float(problem.row_once[row])
        for stage, row in enumerate((0, 2))
    ]
    crossing = graph.cut_bytes()[7] * SHARES[0]
    hand = problem.hand_latency[0, 2] + crossing / problem.hand_rate[0, 2]
    latency = sum(loads) + 2 * hand
    slowest = max(3 * loads[0] + once[0], 3 * loads[1] + once[1], 3 * hand)
    assert problem.seconds(stage_of, (0, 2)) == pytest.approx(latency + slowest)


def test_where_sending_waits_the_sender_is_slower(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    problem = _problem(graph, four, microbatches=4)
    stage_of = (np.arange(len(graph)) >= 7).astype(np.int64)
    waiting = replace(problem, overlapped=False)
    assert waiting.seconds(stage_of, (2, 0)) > problem.seconds(stage_of, (2, 0))


def test_a_tensor_needed_twice_later_crosses_once(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(skip=True)
    problem = _problem(graph, four)
    stage_of = np.minimum(np.arange(len(graph)) // 4, 3).astype(np.int64)
    crossing = problem.crossing(stage_of, 4)
    assert crossing == pytest.approx(graph.cut_bytes()[[4, 8, 12]] * SHARES[0])


def test_memory_holds_as_many_micro_batches_as_are_in_flight(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    stage_of = np.minimum(np.arange(len(graph)) // 4, 3).astype(np.int64)

    def held(**options: object) -> np.ndarray:
        return _problem(graph, four, microbatches=8, **options).cost(stage_of, (0, 1, 2, 3)).memory.held

    by_turns, all_first, again = held(), held(schedule="gpipe"), held(recompute=True)
    assert all_first / by_turns == pytest.approx([2.0, 8 / 3, 4.0, 8.0])
    assert (again < by_turns)[:3].all()


def test_a_weight_used_twice_on_a_device_is_there_once(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    problem = _problem(graph, four)
    together = problem.cost(np.zeros(len(graph), dtype=np.int64), (0,)).memory.resident.sum()
    apart = problem.cost((np.arange(len(graph)) >= 7).astype(np.int64), (0, 1)).memory.resident.sum()
    assert apart - together == pytest.approx(graph.ties[0].parameters * 16.0)


def test_no_link_is_no_plan(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    cut_off = Devices(four.devices, np.zeros_like(four.bandwidth), four.latency)
    stage_of = (np.arange(len(graph)) >= 7).astype(np.int64)
    assert _problem(graph, cut_off).seconds(stage_of, (0, 1)) == np.inf
    assert np.isfinite(_problem(graph, cut_off).seconds(np.zeros(len(graph), dtype=np.int64), (0,)))


@pytest.mark.parametrize(
    ("optimizer", "sharding", "expected"),
    [
        ("sgd", "none", (4, 4, 0)),
        ("adam", "none", (4, 4, 8)),
        ("adam", "optimizer", (4, 4, 2)),
        ("adam", "full", (1, 1, 2)),
        ("momentum", "full", (1, 1, 1)),
    ],
)
def test_sharding_divides_what_it_says(optimizer: str, sharding: str, expected: tuple[float, ...]) -> None:
    layout = Layout((1, 1, 1, 1), sharding=sharding)  # type: ignore[arg-type]
    assert bytes_per_weight(Recipe(4, optimizer=optimizer), layout) == expected  # type: ignore[arg-type]
    assert bytes_per_weight(Recipe(4, training=False), layout) == (4, 0, 0)


def test_replicas_add_up_gradients_over_the_slowest_link(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=8, width=1024)
    near, far = devices_of("a100:2", "10Gbit"), devices_of("a100:2/1", "10Gbit")
    layout = Layout((4, 4))
    once = [
        problem_of(graph, devices, Recipe(8), layout, (((0,), (1,)),)).once.sum() for devices in (near, far)
    ]
    assert once[1] > 5 * once[0]


def test_devices_that_share_products_are_faster_and_hold_less(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=8, width=4096, tokens=512)
    splittable = replace(graph, split=np.array([float(kind == "matmul") for kind in graph.kinds]))
    devices = devices_of("a100:4", "10Gbit")
    alone = problem_of(splittable, devices, Recipe(8), Layout((8,)), (((0,),),))
    shared = problem_of(splittable, devices, Recipe(8), Layout((8,), tensor=4), (((0, 1, 2, 3),),))
    assert shared.forward.sum() < 0.5 * alone.forward.sum()
    assert shared.resident.sum() < 0.4 * alone.resident.sum()


def test_a_plan_leaves_something_to_the_driver(four: Devices) -> None:
    assert 0.8 * four[0].memory < usable_memory(four[0]) < four[0].memory
