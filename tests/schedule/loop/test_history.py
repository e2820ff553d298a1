"""What ended jobs teach: rates and what is left, with a range."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trimtab.schedule.loop import Asked, History
from trimtab.store import JobRecord, JobRun, JobState


def ended(work: float, **rates: float) -> JobRecord:
    record = JobRecord("a", 0.0, "a", "vision", "resnet", JobState.ENDED, {}, done=work)
    return replace(record, run=JobRun(rates=rates))


def asked(done: float, application: str = "resnet") -> Asked:
    return Asked(application, "vision", 1.0, done)


def test_what_is_left_is_the_median_of_those_that_went_on_for_longer() -> None:
    history = History([ended(work) for work in (10.0, 20.0, 30.0, 40.0, 50.0)])
    left = history.left(asked(15.0))
    assert left is not None
    assert (left.low, left.value, left.high) == (5.0, 20.0, 35.0)


def test_too_few_examples_teach_nothing() -> None:
    history = History([ended(10.0), ended(20.0)])
    assert history.left(asked(0.0)) is None
    assert History([ended(1.0)] * 9).left(asked(2.0)) is None
    assert history.left(asked(0.0, "bert")) is None


def test_rates_are_medians_of_those_measured() -> None:
    history = History([ended(1.0, t4=2.0), ended(1.0, t4=4.0, a100=9.0), ended(1.0, t4=3.0)])
    assert history.rates("resnet") == {"t4": 3.0, "a100": 9.0}
    assert history.rates("bert") == {}


@given(st.lists(st.floats(0.1, 1e9), min_size=1, max_size=30), st.floats(0, 1e9))
def test_something_is_left_and_lies_within_its_range(works: list[float], done: float) -> None:
    left = History([ended(work) for work in works]).left(asked(done))
    if left is not None:
        assert 0 <= left.low <= left.value <= left.high
