"""The order of stages, and the words of a container's command."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.pipelines.pipeline import (
    Content,
    PipelineStage,
    Source,
    Word,
    environment,
    fill_placeholders,
    ordered,
    refuse_unknown_parameters,
)

FILE = Path("p.yaml")


def stage(name: str, *after: str) -> PipelineStage:
    return PipelineStage(name, (("true",),), (0,), Path(), after)


@settings(max_examples=30)
@given(st.data(), st.integers(1, 8))
def test_every_stage_comes_behind_all_it_waits_for(data: st.DataObject, count: int) -> None:
    stages = [
        stage(str(n), *data.draw(st.sets(st.integers(0, n - 1).map(str)) if n else st.just(set())))
        for n in range(count)
    ]
    order = ordered(FILE, data.draw(st.permutations(stages)))
    position = {item.name: number for number, item in enumerate(order)}
    assert len(order) == count
    assert all(position[other] < position[item.name] for item in order for other in item.after)


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ([], "has no stages"),
        ([stage("a", "b"), stage("b", "c"), stage("c", "a")], "in a circle: .* → "),
        ([stage("a", "a")], "in a circle: a → a"),
        ([stage("a"), stage("a")], "two stages are called a"),
        ([stage("train"), stage("b", "tran")], r"\"tran\".*train"),
    ],
)
def test_what_has_no_order_is_refused(stages: list[PipelineStage], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        ordered(FILE, stages)


HOLES = re.compile(r"<(.*?)>")
VALUES: dict[str, Word] = {"n": ("5",), "made": (Content(Path("made")),), "none": ("",)}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", ("",)),
        ("--n=< n ><none>0", ("--n=50",)),
        ("--n=<made>", ("--n=", Content(Path("made")))),
        ("a <made> b", ("a ", Content(Path("made")), " b")),
    ],
)
def test_texts_are_joined_and_what_is_made_later_stays_apart(text: str, word: Word) -> None:
    assert fill_placeholders(text, HOLES, VALUES.__getitem__) == word


def test_variables_without_a_name_are_left_out() -> None:
    variables = [{"name": "SEED", "value": 1}, {"name": "KEY", "valueFrom": {}}, {"value": "x"}, "y"]
    assert environment({"env": variables}) == {"SEED": "1", "KEY": ""}


def test_a_parameter_that_is_not_there_is_refused() -> None:
    source = Source(Path("p.yaml"), (), Path(), Path(), {"epoch": "3"})
    refuse_unknown_parameters(source, ["epoch"])
    with pytest.raises(BadInputError, match=r'"epoch".*epochs, seed'):
        refuse_unknown_parameters(source, ["epochs", "seed"])
