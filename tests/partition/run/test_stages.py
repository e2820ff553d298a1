"""Stages one after the other compute what the whole model does."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.core import BadInputError
from trimtab.partition import Plan, Stage, capture_model
from trimtab.partition.capture.builder import load_builder
from trimtab.partition.capture.capturing import Captured
from trimtab.partition.run.prepared import WithoutDropout, stop_dropout
from trimtab.partition.run.stages import stage_modules


def _chained(stages: list[Any], captured: Captured, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    assert captured.program is not None
    arriving: tuple[Tensor, ...] = ()
    for stage in stages:
        stage.load({**captured.program.state_dict, **captured.program.constants}, torch.device("cpu"))
        stage.constants = {number: inputs[number] for number in stage.facts.constants}
        arriving = stage(*arriving, **{f"input_{number}": inputs[number] for number in stage.facts.loaded})
    return arriving


@pytest.mark.parametrize("name", ["decoder", "skips", "rows", "pair"])
@pytest.mark.parametrize("count", [1, 3])
def test_stages_in_a_row_compute_what_the_model_does(
    name: str, count: int, target: Any, even_plan: Any
) -> None:
    torch.manual_seed(3)
    built = load_builder(target(name), real=True)
    captured = capture_model(built.model, built.inputs, name)
    plan = even_plan(captured.graph, count)
    stages = pickle.loads(pickle.dumps(stage_modules(captured, plan, dropout=False)))
    shapes = built.inputs if isinstance(built.inputs, dict) else dict(enumerate(built.inputs))
    inputs = [x if x.dtype == torch.long else torch.randn_like(x) for x in shapes.values()]
    result = _chained(stages, captured, inputs)
    stop_dropout(built.model)
    with WithoutDropout():
        expected = built.model(*inputs)
    whole = list(expected.values()) if isinstance(expected, dict) else [expected]
    for one, other in zip(result, whole, strict=True):
        torch.testing.assert_close(one, other)
    buffers = dict(built.model.named_buffers())
    for stage in stages:
        for buffer in stage.facts.buffers:
            torch.testing.assert_close(stage.whole_state()[buffer], buffers[buffer])


def test_a_stage_holds_its_own_weights_only_and_tied_ones_twice(target: Any, even_plan: Any) -> None:
    built = load_builder(target("decoder"))
    captured = capture_model(built.model, built.inputs, "decoder")
    stages = stage_modules(captured, even_plan(captured.graph, 3))
    held = [{name for name, _ in stage.facts.weights} for stage in stages]
    assert set.union(*held) == {name for name, _ in built.model.named_parameters()} ^ {
        "words.weight",
        "head.weight",
    }
    assert held[0] & held[2] == {"head.weight"}
    assert not held[0] & held[1]


def test_what_skips_a_stage_is_handed_through_it_and_nothing_else(target: Any, even_plan: Any) -> None:
    built = load_builder(target("skips"))
    captured = capture_model(built.model, built.inputs, "skips")
    first, second, third = stage_modules(captured, even_plan(captured.graph, 3))
    passed = {tensor.name for tensor in first.facts.handed_on} & {t.name for t in third.facts.received}
    assert passed
    assert passed <= {tensor.name for tensor in second.facts.received}
    assert first.facts.handed_on == second.facts.received
    assert second.facts.handed_on == third.facts.received


def test_a_plan_that_runs_an_operation_before_what_it_needs_is_refused(target: Any) -> None:
    built = load_builder(target("rows"))
    captured = capture_model(built.model, built.inputs, "rows")
    backwards = tuple(reversed(range(len(captured.graph))))
    half = len(backwards) // 2
    plan = Plan((Stage(backwards[:half], ((0,),)), Stage(backwards[half:], ((1,),))), (2,), 1)
    with pytest.raises(BadInputError, match=r"stage 0|stage 1"):
        stage_modules(captured, plan)


def test_a_model_that_does_not_export_is_refused_in_one_sentence(target: Any, even_plan: Any) -> None:
    built = load_builder(target("undecided"), real=True)
    captured = capture_model(built.model, built.inputs, "undecided")
    with pytest.raises(BadInputError, match=r"undecided.*torch\.export"):
        stage_modules(captured, even_plan(captured.graph, 2))


def test_recomputing_a_stage_gives_the_same_gradients_and_counts_a_batch_once(
    target: Any, even_plan: Any
) -> None:
    built = load_builder(target("skips"), real=True)
    captured = capture_model(built.model, built.inputs, "skips")
    assert captured.program is not None
    result = []
    for recompute in (False, True):
        stage = stage_modules(captured, even_plan(captured.graph, 1))[0]
        stage.load({**captured.program.state_dict, **captured.program.constants}, torch.device("cpu"))
        stage.recompute = recompute
        torch.manual_seed(0)
        stage(input_0=torch.randn(2, 1, 8, 8))[0].square().mean().backward()
        result.append(stage)
    for plain, again in zip(result[0].parameters(), result[1].parameters(), strict=True):
        torch.testing.assert_close(plain.grad, again.grad)
    states = [stage.whole_state() for stage in result]
    for name in result[0].facts.buffers:
        torch.testing.assert_close(states[0][name], states[1][name])
