from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import Case, Corpus, backtest, predictions
from trimtab.predict.fewshot.protocol import SHOTS, leave_application_out


@dataclass
class Curious:
    """Answers with the measured times if it is shown them, else with one second."""

    name: str = "curious"
    trained: list[set[str]] = field(default_factory=list)

    def fit(self, cases: Sequence[Case]) -> "Curious":
        self.trained.append({case.application for case in cases})
        return self

    def predict(self, case: Case, known: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.where(case.ok, case.seconds, 1.0)


def test_a_predictor_is_shown_the_known_rows_only(make_case: Callable[..., Case]) -> None:
    corpus = Corpus("some", tuple(make_case((4.0,) * 6, application=a) for a in "ab"))
    curious = Curious()
    found = backtest(curious, leave_application_out(corpus))
    assert list(found) == list(SHOTS)
    assert [scores.mean_ape for scores in found.values()] == [0.75] * 3
    assert curious.trained == [{"b"}, {"a"}]


def test_every_prediction_stands_beside_its_measurement(make_case: Callable[..., Case]) -> None:
    corpus = Corpus("some", tuple(make_case((4.0, 3.0), application=a) for a in "ab"))
    found = predictions(Curious(), leave_application_out(corpus, draws=2))
    assert list(found) == [1]
    assert list(found[1].application) == ["a", "a", "b", "b"]
    assert set(found[1].measured) <= {3.0, 4.0}
    assert found[1].predicted.tolist() == [1.0] * 4
