import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench.fewshot_protocol import backtest, read_serverless, synthetic_to_real
from trimtab_bench.fewshot_trees import Trees, features

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.case import Case


def _training(make_case: Callable[..., Case]) -> list[Case]:
    """Half of the functions halve their time with twice the memory and keep the CPU busy; half do neither."""
    cases = []
    for i in range(20):
        busy = i % 2 == 0
        level = 1.0 + i
        seconds = level / 2.0 ** np.arange(4) if busy else np.full(4, level)
        case = make_case(seconds, application=f"app{i}")
        metrics = case.metrics.copy()
        metrics[:, 0] = 1.0 if busy else 0.1
        cases.append(make_case(seconds, application=f"app{i}", metrics=metrics))
    return cases


def test_the_trees_learn_who_responds_to_memory(make_case: Callable[..., Case]) -> None:
    training = _training(make_case)
    fitted = Trees(smallest_leaf=5).fit([*training[:4], *training[6:]])
    responds, stays = (fitted.predict(case, np.array([0])) / case.seconds[0] for case in training[4:6])
    assert responds[2] < 0.35
    assert stays[2] > 0.6


def test_the_same_seed_gives_the_same_trees(make_case: Callable[..., Case]) -> None:
    training = _training(make_case)
    first, second = (Trees(rounds=20).fit(training).predict(training[0], np.array([1, 2])) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_order_of_the_known_makes_no_difference(make_case: Callable[..., Case]) -> None:
    case = make_case((8.0, 4.0, 2.0, 1.0))
    np.testing.assert_array_equal(features(case, np.array([0, 2])), features(case, np.array([2, 0])))


def test_without_lightgbm_the_sentence_says_how_to_get_it(
    make_case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    fitted = Trees().fit(_training(make_case))
    with pytest.raises(MissingDependencyError, match=r"trimtab\[learn\]"):
        fitted.predict(make_case(), np.array([0]))


@pytest.mark.slow
def test_the_trees_score_on_functions_about_what_is_published_for_such_trees(shared_data: Path) -> None:
    found = backtest(Trees(), synthetic_to_real(read_serverless(shared_data)))
    assert [100 * scores.mean_ape for scores in found.values()] == pytest.approx([89.0, 47.3, 41.6], abs=3.0)
