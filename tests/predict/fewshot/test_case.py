from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import (
    METRIC_MEANINGS,
    METRICS,
    SCALES,
    SETTINGS,
    SWITCHES,
    Case,
    Corpus,
    metrics_table,
    settings_table,
)

MakeCase = Callable[..., Case]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"seconds": np.array([1.0, 0.0, 1.0])}, "256MB: 0 seconds; times are positive"),
        ({"seconds": np.array([1.0, -2.0, 1.0])}, "256MB: -2 seconds; times are positive"),
        ({"seconds": np.array([1.0, np.inf, 1.0])}, "seconds has an infinite value"),
        ({"ok": np.array([True, False])}, r"ok has the shape \(2,\), not \(3,\)"),
        ({"settings": np.zeros((3, 2))}, r"settings has the shape \(3, 2\)"),
        ({"metrics": np.zeros(3)}, r"metrics has the shape \(3,\)"),
        ({"configurations": ("a", "b", "a")}, "the same configuration twice"),
        ({"configurations": ()}, "has no measured configuration"),
        ({"seconds": np.array([1.0, np.nan, 1.0]), "ok": np.ones(3, bool)}, "a completed run has a time"),
    ],
)
def test_a_case_that_cannot_be_is_refused_in_one_sentence(
    make_case: MakeCase, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInputError, match=sentence):
        make_case(**{"seconds": (1.0, 2.0, 3.0), **fields})


def test_a_failed_run_may_have_no_time(make_case: MakeCase) -> None:
    assert make_case((1.0, float("nan"), 2.0)).ok.tolist() == [True, False, True]


def test_rows_are_chosen_by_mask_or_by_index(make_case: MakeCase) -> None:
    case = make_case((8.0, 4.0, 2.0))
    assert case.only(np.array([True, False, True])).configurations == ("128MB", "512MB")
    assert case.only([2, 0]).seconds.tolist() == [2.0, 8.0]
    assert len(case.only([1])) == 1


def test_the_arrays_of_a_case_cannot_be_changed(make_case: MakeCase) -> None:
    seconds = np.array([1.0, 2.0])
    case = make_case(seconds)
    seconds[0] = 9.0
    assert case.seconds[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        case.seconds[0] = 5.0


def test_what_was_not_run_is_blank(make_case: MakeCase) -> None:
    shown = make_case((8.0, 4.0, 2.0)).known_at(np.array([1]))
    assert np.isnan(shown.seconds).tolist() == [True, False, True]
    assert shown.ok.tolist() == [False, True, False]
    assert np.isnan(shown.metric("cpu_user")).tolist() == [True, False, True]
    assert not np.isnan(shown.setting("memory_bytes")).any()


def test_a_corpus_names_its_applications_and_environments_once(make_case: MakeCase) -> None:
    corpus = Corpus("some", (make_case(name="a"), make_case(name="b"), make_case(application="other")))
    assert corpus.applications == ("resize", "other")
    assert corpus.environments == ("lambda",)
    with pytest.raises(BadInputError, match=r"openwhisk.*lambda"):
        corpus.within("openwhisk")


def test_what_never_completed_drops_out_of_the_completed(make_case: MakeCase) -> None:
    failed = make_case((1.0, 2.0), ok=np.zeros(2, bool))
    some = make_case((1.0, 2.0), ok=np.array([False, True]), application="other")
    completed = Corpus("some", (failed, some)).completed()
    assert [c.configurations for c in completed.cases] == [("256MB",)]
    with pytest.raises(BadInputError, match="completed"):
        Corpus("none", (failed,)).completed()


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(BadInputError, match="nothing"):
        Corpus("nothing", ())


def test_every_column_says_what_it_is_in_one_line() -> None:
    for meaning in (SCALES | SWITCHES | METRIC_MEANINGS).values():
        assert meaning
        assert "\n" not in meaning
    assert len(set(SETTINGS)) == len(SETTINGS)
    assert len(set(METRICS)) == len(METRICS)


def test_what_is_not_given_is_unknown() -> None:
    table = settings_table(2, cpus=[1, 2])
    assert table.shape == (2, len(SETTINGS))
    assert table[:, SETTINGS.index("cpus")].tolist() == [1.0, 2.0]
    assert np.isnan(np.delete(table, SETTINGS.index("cpus"), axis=1)).all()
    assert metrics_table(3).shape == (3, len(METRICS))


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"'colour'.*memory_bytes"):
        settings_table(1, colour=1.0)
