"""Times measured on this machine."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from trimtab.partition import (
    MeasuredLink,
    Recipe,
    RunReport,
    load_graph,
    measure_link,
    predicted_here,
    time_stages,
)
from trimtab.partition.run.measuring import SIZES, fitted


@given(bandwidth=st.floats(1e7, 1e11), latency=st.floats(1e-6, 1e-2))
def test_a_perfect_link_is_found_again(bandwidth: float, latency: float) -> None:
    link = fitted({size: latency + size / bandwidth for size in SIZES})
    assert link.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert link.latency == pytest.approx(latency, rel=1e-3)


def test_two_processes_measure_a_link_that_could_be() -> None:
    link = measure_link(timeout=150.0)
    assert 1e6 < link.bandwidth < 1e12
    assert 0.0 <= link.latency < 1.0
    assert link.seconds.keys() == set(SIZES)


@pytest.mark.parametrize("name", ["decoder", "skips"])
def test_every_stage_has_its_seconds_and_bytes(name: str, target: Any, even_plan: Any) -> None:
    graph = load_graph(target(name))
    times = time_stages(
        target(name), graph, even_plan(graph, 2, recompute=True), Recipe(4), rounds=2, device="cpu"
    )
    assert len(times) == 2
    assert all(time.forward > 0 and time.backward > 0 and time.update > 0 for time in times)


def test_inference_has_no_way_back(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("rows"))
    recipe = Recipe(4, training=False, precision="bf16")
    (time,) = time_stages(target("rows"), graph, even_plan(graph, 1), recipe, rounds=2, device="cpu")
    assert time.forward > 0
    assert time.backward == time.update == 0.0


def test_products_in_tf32_stay_with_the_stages_that_asked_for_them(target: Any, even_plan: Any) -> None:
    graph = load_graph(target("rows"))
    before = torch.get_float32_matmul_precision()
    time_stages(target("rows"), graph, even_plan(graph, 1), Recipe(4, "tf32"), rounds=1, device="cpu")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_times_stages_too(precision: str, target: Any, even_plan: Any) -> None:
    graph = load_graph(target("decoder"))
    plan = even_plan(graph, 2)
    times = time_stages(target("decoder"), graph, plan, Recipe(4, precision=precision))
    assert all(time.forward > 0 and time.memory > 0 for time in times)


FAST = MeasuredLink(1e12, 0.0, {})


def report(forward: float, backward: float) -> RunReport:
    return RunReport((), (), 0.0, 0.0, 1.0, (1.0,), (), forward, backward, 1, True, ())


def test_twice_the_whole_models_time_is_nearly_twice_the_step(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 2, microbatches=4)
    recipe = Recipe(plan.batch, optimizer="sgd")
    once = predicted_here(graph, plan, recipe, report(1.0, 2.0), FAST)
    twice = predicted_here(graph, plan, recipe, report(2.0, 4.0), FAST)
    assert 4 * 3.0 / 2 < once < 4 * 3.0 + 3.0
    assert twice == pytest.approx(2 * once, rel=0.01)


def test_a_slow_link_is_waited_for(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 2, microbatches=4)
    recipe = Recipe(plan.batch)
    fast = predicted_here(graph, plan, recipe, report(1e-3, 2e-3), FAST)
    assert predicted_here(graph, plan, recipe, report(1e-3, 2e-3), MeasuredLink(1e12, 0.5, {})) > fast + 0.5


def test_a_plan_for_gpus_is_predicted_as_it_runs_here(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 1, order=(3,))
    half, full = Recipe(plan.batch, "bf16"), Recipe(plan.batch)
    assert predicted_here(graph, plan, half, report(1.0, 2.0), FAST) == pytest.approx(
        predicted_here(graph, plan, full, report(1.0, 2.0), FAST)
    )
