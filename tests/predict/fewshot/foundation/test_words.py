"""Reasons in words."""

import math
from dataclasses import replace

import pytest

from trimtab.predict import Foundation, Prediction, explained, predict
from trimtab.predict.fewshot.foundation.words import likeness, signed


@pytest.fixture
def answer(shipped: Foundation) -> Prediction:
    return predict({"observations": [{"memory": "512MB", "time": "1s"}]}, "1GB", shipped)


def _with(answer: Prediction, **changes: object) -> str:
    return likeness(replace(answer, guarded=replace(answer.guarded, **changes)))  # type: ignore[arg-type]


def test_how_unlike_it_is_is_said_by_numbers_and_by_embedding(answer: Prediction) -> None:
    by_numbers = _with(answer, unlike=1.26, score=None)
    assert by_numbers == "It is 1.3 standard deviations from the most alike application learned from."
    both = _with(answer, unlike=1.26, score=0.4, alike=("sorting", "hashing"))
    assert both.startswith(by_numbers)
    assert "40% of applications never seen were nearer" in both
    assert both.endswith("most alike: sorting, hashing.")
    assert _with(answer, unlike=math.inf, score=None).startswith("Nothing that was learned from")


def test_parts_have_signs() -> None:
    assert (signed(0.25), signed(-2.0), signed(0.0)) == ("+250 ms", "-2 s", "+0 s")


def test_what_was_measured_is_not_taken_apart(answer: Prediction) -> None:
    assert explained(answer, "512MB")[0] == "512MB takes 1 s, as measured"
    assert len(explained(answer, "1GB")) > len(explained(answer, "512MB"))
