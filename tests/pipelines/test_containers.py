"""What both compiled forms do with a container's words."""

import re
from pathlib import Path

import pytest

from trimtab.core import BadInputError
from trimtab.pipelines.containers import environment, filled, refuse_unknown_parameters
from trimtab.pipelines.pipeline import Content, Word
from trimtab.pipelines.source import Source

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
    assert filled(text, HOLES, VALUES.__getitem__) == word


def test_variables_without_a_name_are_left_out() -> None:
    told = [{"name": "SEED", "value": 1}, {"name": "KEY", "valueFrom": {}}, {"value": "x"}, "y"]
    assert environment({"env": told}) == {"SEED": "1", "KEY": ""}


def test_a_parameter_that_is_not_there_is_refused() -> None:
    source = Source(Path("p.yaml"), (), Path(), Path(), {"epoch": "3"})
    refuse_unknown_parameters(source, ["epoch"])
    with pytest.raises(BadInputError, match='no parameter "epoch"; its parameters are epochs, seed'):
        refuse_unknown_parameters(source, ["epochs", "seed"])
