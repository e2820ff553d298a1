"""Applications drawn from segments of work."""

import os
import random

import pytest
from hypothesis import given, strategies as st

from trimtab.collect.functions.applications import (
    SEGMENTS,
    Application,
    Segment,
    Surroundings,
    draw_application,
)


@given(st.integers(0, 10_000), st.integers(0, 1000))
def test_an_application_is_the_same_every_time_and_within_its_ranges(index: int, seed: int) -> None:
    application = draw_application(index, seed)
    assert application == draw_application(index, seed)
    assert application.name == f"f{seed}-{index:04d}"
    assert 1 <= len(application.segments) <= 4
    for segment in application.segments:
        ranges = SEGMENTS[segment.kind].ranges
        assert all(low <= segment.inputs[name] <= high for name, (low, high) in ranges.items())


def test_the_measured_ones_stay_what_they_are() -> None:
    assert [segment.kind for segment in draw_application(3).segments] == ["compress", "image"]


def test_seeds_differ() -> None:
    assert [draw_application(i, 0).segments for i in range(5)] != [
        draw_application(i, 1).segments for i in range(5)
    ]


def test_all_segments_run_in_one_invocation(place: Surroundings) -> None:
    call = Segment("http-call", {"calls": 1, "size": 1000, "milliseconds": 1})
    invoke = Application("two", (call, call)).prepare(place)
    assert place.received == 0
    invoke()
    assert place.received == 2000


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
