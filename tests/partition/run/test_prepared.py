"""Layers in a row that cannot be exported are cut between layers."""

from typing import Any

import pytest
import torch
from torch import nn

from trimtab.core import BadInputError
from trimtab.partition import Plan, Stage, load_graph
from trimtab.partition.capture.builder import load_builder
from trimtab.partition.run.prepared import prepare


def _cut(names: tuple[str, ...], first_of_second: str) -> Plan:
    nodes, cut = tuple(range(len(names))), names.index(first_of_second)
    return Plan((Stage(nodes[:cut], ((0,),)), Stage(nodes[cut:], ((1,),))), (3,), 1)


def test_stages_of_layers_compute_what_all_layers_do(target: Any) -> None:
    graph = load_graph(target("undecided_rows"))
    plan = _cut(graph.names, "3")
    prepared = prepare(target("undecided_rows"), graph.names, plan, 0, "cpu", dropout=False)
    first, second = prepared.stages[3]
    for stage in (first, second):
        stage.load(prepared.state, torch.device("cpu"))
    values = torch.rand(3, 4)
    torch.testing.assert_close(second(*first(input_0=values))[0], prepared.model(values))
    buffers = dict(prepared.model.named_buffers())
    for name, value in (first.whole_state() | second.whole_state()).items():
        if name in buffers:
            torch.testing.assert_close(value, buffers[name])
    assert {name for name, _ in first.facts.weights} == {
        name for name, _ in prepared.model.named_parameters() if name[0] in "012"
    }
    assert sum(1 for _ in first.parameters()) == len(first.facts.weights)


def test_a_cut_through_a_layer_is_refused(target: Any) -> None:
    graph = load_graph(target("undecided_rows"))
    names = ("input_0", "0", "1", "2.layer", "2.other", "3", "4.layer", "5", "output")
    assert set(graph.names) & set(names)
    with pytest.raises(BadInputError, match="layer 2"):
        prepare(target("undecided_rows"), names, _cut(names, "2.other"), 0, "cpu", dropout=False)


def test_a_stage_without_a_layer_is_refused(target: Any) -> None:
    names = load_graph(target("undecided_rows")).names
    with pytest.raises(BadInputError, match="stage 1"):
        prepare(target("undecided_rows"), names, _cut(names, "output"), 0, "cpu", dropout=False)


def test_the_model_is_left_as_it_was_built(target: Any) -> None:
    names = load_graph(target("undecided_rows")).names
    prepared = prepare(target("undecided_rows"), names, _cut(names, "3"), 0, "cpu", dropout=False)
    torch.manual_seed(0)
    again = load_builder(target("undecided_rows"), real=True).model
    assert isinstance(prepared.model, nn.Sequential)
    for one, other in zip(prepared.model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)
