"""Steps are read from what scripts print, in whatever pieces it comes."""

import math
import time
from itertools import pairwise

from hypothesis import given, strategies as st

from trimtab.collect import Step, StepLines

TEXT = (
    b"loading\nstep 1 loss 0.5 time 100.25\nepoch 1\n  step 2 loss nan time 101\nstep 3 loss 1e-3 time 102.5 "
)


@given(st.lists(st.integers(0, len(TEXT))))
def test_pieces_of_any_size_give_the_same_steps(cuts: list[int]) -> None:
    lines = StepLines()
    places = [0, *sorted(cuts), len(TEXT)]
    for start, end in pairwise(places):
        lines.feed(TEXT[start:end])
    assert [(step.number, step.time) for step in lines.steps] == [(1, 100.25), (2, 101.0)]
    lines.feed(b"acc 0.9\n")
    assert lines.steps[-1] == Step(3, 1e-3, 102.5)
    assert [step.diverged for step in lines.steps] == [False, True, False]
    assert lines.last_words == "epoch 1"


def test_a_line_without_a_time_counts_from_when_it_came() -> None:
    lines = StepLines()
    before = time.time()
    lines.feed(b"step 7 loss lots\n")
    (step,) = lines.steps
    assert before <= step.time <= time.time()
    assert math.isnan(step.loss)


def test_what_never_ends_its_line_takes_no_memory() -> None:
    lines = StepLines()
    for _ in range(100):
        lines.feed(b"x" * 10_000)
    assert len(lines._rest) <= 2**16
