"""Applications are drawn: the same for the same seed, others for another."""

from hypothesis import given, strategies as st

from trimtab.collect.functions.application import Application, Segment, draw_application
from trimtab.collect.functions.segments import SEGMENTS, Surroundings


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
