"""Every kind of work runs, uses what it says, and draws its inputs from its ranges."""

import os
import random

import pytest
from hypothesis import given, strategies as st

from trimtab.collect.functions.segments import SEGMENTS, Surroundings

NEEDS = {"image": "PIL", "json-to-yaml": "yaml", "model-inference": "torch"}


def test_there_are_sixteen_kinds() -> None:
    assert len(SEGMENTS) == 16


@pytest.mark.parametrize("kind", sorted(SEGMENTS))
def test_every_kind_runs_again_and_again_at_its_smallest_inputs(kind: str, place: Surroundings) -> None:
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    segment = SEGMENTS[kind]
    invoke = segment.prepare({name: low for name, (low, _) in segment.ranges.items()}, place)
    for _ in range(2):
        invoke()
    left = [name for name in os.listdir(place.folder) if not name.startswith(("read-", "store-"))]
    assert left == [], "what an invocation writes it removes"


@given(st.sampled_from(sorted(SEGMENTS)), st.integers())
def test_inputs_stay_in_their_ranges(kind: str, seed: int) -> None:
    segment = SEGMENTS[kind]
    inputs = segment.draw(random.Random(seed))
    assert inputs.keys() == segment.ranges.keys()
    assert all(low <= inputs[name] <= high for name, (low, high) in segment.ranges.items())


def test_traffic_is_counted(place: Surroundings) -> None:
    SEGMENTS["http-call"].prepare({"calls": 2, "size": 5000, "milliseconds": 1}, place)()
    assert place.received == 10_000
    assert place.sent > 50
    SEGMENTS["stream"].prepare({"chunks": 3, "size": 1000, "milliseconds": 1}, place)()
    assert place.received == 13_000


def test_two_threads_do_what_one_does(place: Surroundings) -> None:
    for kind in ("compress", "hash-and-encrypt"):
        results = []
        for threads in (1, 2):
            place.chance.seed(1)
            results.append(SEGMENTS[kind].prepare({"size": 50_000, "threads": threads}, place)())
        assert results[0] == results[1]
