from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Case, Interpolation, Stretch
from trimtab.predict.fewshot.schema import metrics_table, settings_table
from trimtab.predict.fewshot.stretch import cpu_share

MakeCase = Callable[..., Case]
SHARES = np.array([0.07, 0.14, 0.29, 0.58, 1.2])


def _settings(cpus: object) -> np.ndarray:
    return settings_table(5, memory_bytes=2.0 ** np.arange(27, 32), cpus=cpus)


def _lawful(make_case: MakeCase, idle: float, work: float, **fields: object) -> Case:
    """Waits for `idle` seconds and computes for `work` seconds of a whole CPU."""
    seconds = idle + work / np.minimum(SHARES, 1.0)
    metrics = metrics_table(5, cpu_user=0.75 * work / seconds, cpu_system=0.25 * work / seconds)
    given: dict[str, object] = {"settings": _settings(SHARES), "metrics": metrics}
    return make_case(seconds, **{**given, **fields})


@given(st.floats(0.0, 100.0), st.floats(1e-3, 100.0), st.integers(0, 4))
def test_one_run_tells_all_where_idle_time_stays_and_work_stretches(
    make_case: MakeCase, idle: float, work: float, known: int
) -> None:
    case = _lawful(make_case, idle, work)
    found = Stretch().fit([]).predict(case.seen_at(np.array([known])), np.array([known]))
    np.testing.assert_allclose(found, case.seconds, rtol=1e-6)


@given(
    st.floats(1e-3, 100.0),
    st.floats(1e-3, 100.0),
    st.sets(st.integers(0, 4), min_size=2, max_size=3).map(sorted),
)
def test_from_two_runs_on_no_metric_is_needed(
    make_case: MakeCase, idle: float, work: float, known: list[int]
) -> None:
    case = _lawful(make_case, idle, work, metrics=metrics_table(5))
    found = Stretch().predict(case.seen_at(np.array(known)), np.array(known))
    np.testing.assert_allclose(found, case.seconds, rtol=1e-6)


def test_without_a_cpu_metric_all_of_one_run_is_taken_for_work(make_case: MakeCase) -> None:
    case = _lawful(make_case, 3.0, 1.0, metrics=metrics_table(5))
    found = Stretch().predict(case, np.array([2]))
    np.testing.assert_allclose(found, case.seconds[2] * 0.29 / np.minimum(SHARES, 1.0))


def test_either_of_the_two_cpu_metrics_will_do(make_case: MakeCase) -> None:
    seconds = 3.0 + 1.0 / np.minimum(SHARES, 1.0)
    for metric in ("cpu_user", "cpu_system"):
        case = make_case(
            seconds, settings=_settings(SHARES), metrics=metrics_table(5, **{metric: 1.0 / seconds})
        )
        np.testing.assert_allclose(Stretch().predict(case, np.array([1])), seconds)


def test_more_cpu_time_than_the_share_allows_leaves_no_idle_time(make_case: MakeCase) -> None:
    case = _lawful(make_case, 0.0, 1.0, metrics=metrics_table(5, cpu_user=3.0))
    np.testing.assert_allclose(Stretch().predict(case, np.array([0])), case.seconds)


def test_runs_that_fit_no_law_still_get_positive_times_that_never_rise_with_the_share(
    make_case: MakeCase,
) -> None:
    case = make_case((1.0, 2.0, 3.0, 4.0, 5.0), settings=_settings(SHARES))
    found = Stretch().predict(case, np.array([0, 2, 4]))
    assert (found > 0).all()
    assert (np.diff(found) <= 1e-9).all()


@pytest.mark.parametrize("cpus", [0.5, np.array([1.0, 1.0, 2.0, 4.0, 8.0]), np.nan], ids=str)
@pytest.mark.parametrize("known", [[1], [0, 3]], ids=str)
def test_where_no_thread_gets_more_cpu_the_line_through_the_known_is_taken(
    make_case: MakeCase, cpus: object, known: list[int]
) -> None:
    case = make_case((8.0, 5.0, 4.0, 2.0, 1.0), settings=_settings(cpus))
    np.testing.assert_allclose(
        Stretch().predict(case, np.array(known)), Interpolation().predict(case, np.array(known))
    )


def test_a_thread_has_one_cpu_at_most(make_case: MakeCase) -> None:
    case = make_case((1.0,) * 5, settings=_settings(SHARES))
    assert cpu_share(case).tolist() == [0.07, 0.14, 0.29, 0.58, 1.0]


@given(st.data())
def test_hidden_runs_are_never_read(make_case: MakeCase, data: st.DataObject) -> None:
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=4))))
    times = np.array(data.draw(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=5)))
    case = make_case(times, settings=_settings(SHARES))
    hidden = np.setdiff1d(np.arange(5), known)
    changed, metrics = times.copy(), case.metrics.copy()
    changed[hidden], metrics[hidden] = 77.0, 0.9
    found = Stretch().predict(case, known)
    other = make_case(changed, settings=case.settings, metrics=metrics)
    np.testing.assert_array_equal(found, Stretch().predict(other, known))
    np.testing.assert_array_equal(found, Stretch().predict(case.seen_at(known), known))


def test_the_order_of_the_known_makes_no_difference(make_case: MakeCase) -> None:
    cpus = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    case = make_case((8.0, 5.0, 3.0, 2.5, 2.0), settings=_settings(cpus))
    one, other = (Stretch().predict(case, np.array(known)) for known in ([3, 4], [4, 3]))
    np.testing.assert_allclose(one, other)


def test_a_prediction_needs_a_known_run(make_case: MakeCase) -> None:
    with pytest.raises(BadInputError, match="no configuration is known"):
        Stretch().predict(make_case(), np.array([], dtype=np.intp))


def _swapping(make_case: MakeCase, cpus: object, **metrics: float) -> Case:
    """Ten seconds in the second size, one of them on the CPU, and nothing but swapping otherwise."""
    seen = {"cpu_user": 0.1, "context_switches": 5000.0, "memory_fraction": 0.9, **metrics}
    return make_case([10.0] * 5, settings=_settings(cpus), metrics=metrics_table(5, **seen))


@pytest.mark.parametrize("cpus", [1.0, np.array([1.0, 1.0, 1.0, 2.0, 0.5])], ids=["same", "different"])
def test_where_a_run_swapped_more_memory_leaves_only_its_work(make_case: MakeCase, cpus: object) -> None:
    found = Stretch().predict(_swapping(make_case, cpus), np.array([1]))
    work = 1.0 / np.minimum(np.broadcast_to(cpus, 5), 1.0)
    np.testing.assert_allclose(found, [10.0, 10.0, *work[2:]])


@pytest.mark.parametrize(
    "unlike",
    [{"context_switches": 100.0}, {"memory_fraction": 0.01}, {"cpu_user": 0.6}, {"memory_fraction": np.nan}],
    ids=str,
)
def test_waiting_for_others_stays_however_much_memory_there_is(
    make_case: MakeCase, unlike: dict[str, float]
) -> None:
    found = Stretch().predict(_swapping(make_case, 1.0, **unlike), np.array([1]))
    np.testing.assert_allclose(found, 10.0)


def test_of_several_known_runs_the_largest_says_whether_more_memory_helps(make_case: MakeCase) -> None:
    case = _swapping(make_case, 1.0)
    np.testing.assert_allclose(Stretch().predict(case, np.array([0, 2])), [10.0, 10.0, 10.0, 1.0, 1.0])
