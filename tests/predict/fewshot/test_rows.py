import numpy as np

from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import metrics_table, settings_table


def _rows(**fields: object) -> Rows:
    given: dict[str, object] = {
        "application": ("a", "b", "a", "a"),
        "name": ("a", "b", "a", "a"),
        "environment": ("here",) * 4,
        "configuration": ("small", "small", "large", "small"),
        "settings": settings_table(4, cpus=[1, 1, 2, 1]),
        "metrics": metrics_table(4, cpu_user=[0.5, 0.1, np.nan, np.nan], cpu_system=[0.1, 0.1, 0.1, 0.3]),
        "seconds": np.array([4.0, 9.0, 1.0, 6.0]),
        "ok": np.array([True, True, True, False]),
    }
    return Rows(**{**given, **fields})  # type: ignore[arg-type]


def test_repeats_are_averaged_over_what_is_known() -> None:
    first, second = _rows().corpus("some").cases
    assert first.configurations == ("small", "large")
    assert first.seconds.tolist() == [5.0, 1.0]
    np.testing.assert_array_equal(first.metric("cpu_user"), [0.5, np.nan])
    np.testing.assert_allclose(first.metric("cpu_system"), [0.2, 0.1])
    assert first.setting("cpus").tolist() == [1.0, 2.0]
    assert second.seconds.tolist() == [9.0]


def test_a_repeat_that_failed_makes_the_configuration_not_ok() -> None:
    assert _rows().corpus("some").cases[0].ok.tolist() == [False, True]


def test_the_same_application_elsewhere_is_another_case() -> None:
    corpus = _rows(environment=("here", "here", "there", "here")).corpus("some")
    assert [(c.application, c.environment) for c in corpus.cases] == [
        ("a", "here"),
        ("b", "here"),
        ("a", "there"),
    ]
