"""Parts of a prediction: they add up, and what is not known or changes nothing has no part."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import Contribution
from trimtab.predict.fewshot.attribution import Answer, Attribution
from trimtab.predict.fewshot.case import METRICS, Array, Case, metrics_table, settings_table
from trimtab.predict.fewshot.predictor import Rows

SIZES = np.array([128.0, 512.0, 1024.0, 3008.0])


def made_up(**metrics: float) -> Case:
    return Case(
        corpus="functions",
        application="f",
        name="f",
        environment="lambda",
        configurations=tuple(f"{size:g}MB" for size in SIZES),
        settings=settings_table(4, memory_bytes=SIZES * 2**20, cpus=SIZES / 1769),
        metrics=metrics_table(4, **{name: np.full(4, value) for name, value in metrics.items()}),
        seconds=np.array([4.0, 1.0, 0.5, 0.25]),
        ok=np.ones(4, dtype=bool),
    )


def by_metrics(case: Case, known: Rows) -> Array:
    """Two seconds, and one more for each CPU-second per second and for every further run that is known."""
    extra = np.nan_to_num(case.metric("cpu_user")[known]).max() + len(known) - 1
    return np.full(len(case), 2.0 + extra)


def contributions(answer: Answer, case: Case, known: Rows, target: int) -> tuple[Contribution, ...]:
    return Attribution(answer, case, known, case.configurations).parts(target)


def test_parts_add_up_to_the_prediction() -> None:
    case = made_up(cpu_user=0.5, memory_used=1e8)
    parts = contributions(by_metrics, case, np.array([0, 1]), 3)
    assert [part.name for part in parts] == [
        "measured at 512MB", "at 3008MB instead", "its CPU time", "its memory", "the run at 128MB",
    ]  # fmt: skip
    assert [part.value for part in parts] == pytest.approx([1.0, 1.0, 0.5, 0.0, 1.0])


def test_what_is_not_known_has_no_part() -> None:
    parts = contributions(by_metrics, made_up(), np.array([1]), 3)
    assert [part.name for part in parts] == ["measured at 512MB", "at 3008MB instead"]


def test_names_for_people_take_the_place_of_keys() -> None:
    parts = Attribution(by_metrics, made_up(), np.array([1]), ("tiny", "small", "middle", "large")).parts(0)
    assert [part.name for part in parts] == ["measured at small", "at tiny instead"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=len(METRICS), max_size=len(METRICS)), st.sampled_from([0, 2, 3]))
def test_they_add_up_however_the_answer_comes_about(slopes: list[float], target: int) -> None:
    case = made_up(cpu_user=0.5, memory_used=0.3, bytes_read=2.0, seconds_least=0.7)

    def answer(shown: Case, known: Rows) -> Array:
        seen = np.nan_to_num(shown.metrics[known]).sum(axis=0)
        return np.full(len(shown), 1.0 + float(np.prod(1.0 + np.array(slopes) * seen / 10)) * len(known))

    parts = contributions(answer, case, np.array([1]), target)
    assert sum(part.value for part in parts) == pytest.approx(float(answer(case, np.array([1]))[target]))


def test_targets_near_the_same_run_share_what_was_computed() -> None:
    request = []

    def counting(case: Case, known: Rows) -> Array:
        request.append(known)
        return by_metrics(case, known)

    why = Attribution(counting, case := made_up(cpu_user=0.5), np.array([1]), case.configurations)
    for target in (0, 2, 3):
        assert sum(part.value for part in why.parts(target)) == pytest.approx(2.5)
    assert len(request) == 2


def test_many_runs_count_as_one_thing_so_that_nobody_waits_for_all_their_orders() -> None:
    count = 30
    case = Case(
        corpus="functions",
        application="f",
        name="f",
        environment="lambda",
        configurations=tuple(f"{size}MB" for size in range(count)),
        settings=settings_table(count, memory_bytes=np.arange(1.0, count + 1) * 2**27),
        metrics=metrics_table(count),
        seconds=np.ones(count),
        ok=np.ones(count, dtype=bool),
    )
    parts = contributions(by_metrics, case, np.arange(count - 1), count - 1)
    assert [part.name for part in parts] == ["measured at 28MB", "at 29MB instead", "the other 28 runs"]
    assert [part.value for part in parts] == pytest.approx([1.0, 1.0, 28.0])
