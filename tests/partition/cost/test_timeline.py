"""Schedules played through: known cases by hand, and laws that every schedule obeys."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from trimtab.partition.cost.timeline import Slot, StageTimes, timeline

TIMES = st.floats(0.1, 5.0)


def _end(slots: tuple[Slot, ...]) -> float:
    return max(slot.end for slot in slots)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 5), (4, 1), (4, 8), (3, 2)])
def test_equal_stages_take_what_the_textbook_says(schedule: str, stages: int, microbatches: int) -> None:
    times = StageTimes([1.0] * stages, [2.0] * stages, [0.0] * (stages - 1), list(range(stages)))
    slots = timeline(times, microbatches, schedule)
    assert _end(slots) == pytest.approx(3.0 * (microbatches + stages - 1))


def test_one_by_one_holds_fewer_micro_batches_than_gpipe() -> None:
    times = StageTimes([1.0] * 4, [2.0] * 4, [0.0] * 3, list(range(4)))
    held = {name: _most_in_flight(timeline(times, 16, name), 0) for name in ("gpipe", "1f1b")}
    assert held == {"gpipe": 16, "1f1b": 4}


def _most_in_flight(slots: tuple[Slot, ...], stage: int) -> int:
    events = [
        (slot.start, 1) if slot.phase == "forward" else (slot.end, -1)
        for slot in slots
        if slot.stage == stage
    ]
    held = most = 0
    for _, change in sorted(events, key=lambda event: (event[0], event[1])):
        held += change
        most = max(most, held)
    return most


@given(
    forward=st.lists(TIMES, min_size=1, max_size=5),
    backward=TIMES,
    hand=st.floats(0.0, 3.0),
    microbatches=st.integers(1, 6),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    shared=st.booleans(),
)
def test_nobody_does_two_things_at_once_or_works_on_what_has_not_arrived(
    forward: list[float], backward: float, hand: float, microbatches: int, schedule: str, shared: bool
) -> None:
    count = len(forward)
    device = [stage % 2 for stage in range(count)] if shared else list(range(count))
    times = StageTimes(forward, [backward] * count, [hand] * (count - 1), device)
    slots = timeline(times, microbatches, schedule)
    assert len(slots) == 2 * count * microbatches
    for who in set(device):
        mine = sorted((slot.start, slot.end) for slot in slots if device[slot.stage] == who)
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(mine))
    by_key = {(slot.stage, slot.phase, slot.microbatch): slot for slot in slots}
    for slot in slots:
        if slot.phase == "forward" and slot.stage:
            before = by_key[slot.stage - 1, "forward", slot.microbatch]
        elif slot.phase == "backward" and slot.stage < count - 1:
            before = by_key[slot.stage + 1, "backward", slot.microbatch]
        else:
            continue
        assert slot.start >= before.end + hand - 1e-9


def test_a_slow_link_sets_the_pace_like_a_slow_stage() -> None:
    times = StageTimes([1.0, 1.0], [1.0, 1.0], [10.0], [0, 1])
    there, last_forward = 1 + 5 * 10, 1
    back = 1 + 5 * 10  # the first gradient is sent after one backward pass
    assert _end(timeline(times, 5, "gpipe")) == pytest.approx(there + last_forward + back + 1)


def test_inference_only_goes_forward() -> None:
    slots = timeline(StageTimes([1.0, 2.0], [9.0, 9.0], [0.5], [0, 1]), 3, "1f1b", training=False)
    assert {slot.phase for slot in slots} == {"forward"}
    assert _end(slots) == pytest.approx(1 + 0.5 + 3 * 2)
