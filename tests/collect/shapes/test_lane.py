"""Real workers in real control groups: what they show under each shape, and how it is told when they fail."""

from collections.abc import Callable

import pytest

from tests.collect.functions.conftest import group_folders
from trimtab.collect.shapes import Lane, Point, Spec, measure
from trimtab.observe.host import HostSpeed

from .conftest import LARGE, SMALL, workers_in

MakeSpec = Callable[..., Spec]


def measured(spec: Spec, workers: int = 1) -> dict[str, Point]:
    """The points of the only job, by shape; nothing may be left running."""
    points = measure(Lane(spec.jobs[0], 10, workers), spec.shapes, spec, HostSpeed())
    assert group_folders() == []
    assert workers_in(spec.jobs[0].folder) == []
    return {point.shape: point for point in points}


def test_half_the_cpu_takes_twice_as_long(make_spec: MakeSpec) -> None:
    found = measured(make_spec())
    small, large = found["small"], found["large"]
    assert (small.status, large.status) == ("ok", "ok")
    assert small.step_seconds == pytest.approx(0.05, rel=0.35)
    assert small.step_seconds / large.step_seconds == pytest.approx(2.0, rel=0.35)
    assert small.cpu_seconds_step == pytest.approx(0.01, rel=0.4)
    assert small.throttled_share > large.throttled_share > 0.2
    assert small.seconds == pytest.approx(200 * small.step_seconds)
    assert small.cost == pytest.approx(small.seconds / 3600 * SMALL.price_per_hour)
    assert small.trial_seconds >= 1.0
    assert small.attempts >= 2


def test_two_machines_halve_the_steps_and_double_the_price(make_spec: MakeSpec) -> None:
    large = measured(make_spec(), workers=2)["large"]
    assert large.seconds == pytest.approx(100 * large.step_seconds)
    assert large.cost == pytest.approx(2 * large.seconds / 3600 * LARGE.price_per_hour)


def test_what_grows_beyond_the_memory_is_noted_so(make_spec: MakeSpec) -> None:
    found = measured(make_spec("greedy"))
    assert found["small"].status == "out-of-memory"
    assert found["small"].step_seconds is None
    assert found["small"].cost is None


@pytest.mark.parametrize(
    ("how", "status", "sentence"),
    [
        ("silent", "no-steps", ""),
        ("diverges", "diverged", ""),
        ("dies", "failed", "the disk is on fire"),
        ("ends", "failed", "ended by itself after 7 steps; give it more epochs"),
    ],
)
def test_what_goes_wrong_is_a_status(
    make_spec: MakeSpec, caplog: pytest.LogCaptureFixture, how: str, status: str, sentence: str
) -> None:
    found = measured(make_spec(how), workers=2 if how == "dies" else 1)
    assert {point.status for point in found.values()} == {status}
    assert sentence in caplog.text


def test_a_command_that_cannot_be_started_is_a_failure_with_a_reason(
    make_spec: MakeSpec, caplog: pytest.LogCaptureFixture
) -> None:
    from dataclasses import replace

    spec = make_spec()
    spec = replace(spec, jobs=(replace(spec.jobs[0], command="no-such-program {batch}"),))
    assert {point.status for point in measured(spec).values()} == {"failed"}
    assert '"no-such-program" cannot be started' in caplog.text
