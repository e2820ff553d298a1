from collections.abc import Callable

import numpy as np
import pytest

from trimtab.predict.fewshot import Case, Fitted
from trimtab.predict.fewshot.rules import MeanOfKnown
from trimtab.predict.fewshot.sizeless import Sizeless

pytest.importorskip("torch", reason="PyTorch is not installed")

MakeCase = Callable[..., Case]


def _busy_or_waiting(make_case: MakeCase, count: int) -> list[Case]:
    """A function that keeps its CPU busy halves its time with twice the memory; one that waits does not."""
    cases = []
    for i in range(count):
        busy = i % 2 == 0
        level = 0.5 * 1.3**i
        seconds = level / 2.0 ** np.arange(4) if busy else np.full(4, level)
        metrics = make_case(seconds).metrics.copy()
        metrics[:, 0] = 1.0 if busy else 0.1
        cases.append(make_case(seconds, application=f"app{i}", metrics=metrics))
    return cases


def _error(predictor: Fitted, case: Case, known: list[int]) -> float:
    hidden = np.setdiff1d(np.arange(len(case)), known)
    predicted = predictor.predict(case, np.array(known))
    return float(np.abs(predicted / case.seconds - 1.0)[hidden].mean())


@pytest.mark.parametrize("known", [[0], [1, 3], [0, 1, 3]], ids=str)
def test_it_learns_who_responds_to_memory(make_case: MakeCase, known: list[int]) -> None:
    cases = _busy_or_waiting(make_case, 16)
    met, training = cases[6:8], cases[:6] + cases[8:]
    fitted = Sizeless(epochs=100, neurons=64, batch=8, l2=1e-4).fit(training)
    busy, waiting = met
    assert _error(fitted, busy, known) < 0.5 * _error(MeanOfKnown(), busy, known)
    assert _error(fitted, waiting, known) < 0.15


def test_the_time_limit_ends_training_early(make_case: MakeCase) -> None:
    cases = _busy_or_waiting(make_case, 4)
    Sizeless(epochs=10**9, neurons=8, time_limit=0.2).fit(cases)
