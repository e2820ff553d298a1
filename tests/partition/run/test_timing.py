"""Stages that are timed alone."""

from typing import Any

import pytest
import torch

from trimtab.partition import Recipe, load_graph, time_stages


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
