import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from trimtab_bench.fewshot_protocol import (
    Fold,
    ScoredPredictions,
    backtest,
    functions,
    functions_elsewhere,
    leave_application_out,
    leave_functions_out,
    predictions,
    read_serverless,
    score,
    synthetic_to_real,
)

from trimtab.core import BadInputError
from trimtab.predict.fewshot.blend import SHOTS, Episode
from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.datasets import read_multicloud, read_scout

MakeCase = Callable[..., Case]


def _combinations(folds: list[Fold]) -> list[int]:
    return [sum(len(e.targets) for fold in folds for e in fold.episodes[k]) for k in SHOTS]


def _no_application_is_trained_on_and_met(folds: list[Fold]) -> None:
    for fold in folds:
        trained = {case.application for case in fold.training}
        met = {e.case.application for episodes in fold.episodes.values() for e in episodes}
        assert met
        assert not trained & met


def _measured(make_case: MakeCase, applications: int = 12) -> Corpus:
    """Each application in two environments; one of them fails at the smallest size."""
    times = (6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
    cases = [
        make_case(times, application=f"app{i}", name=f"app{i}", environment=where)
        for where in ("lambda", "openwhisk")
        for i in range(applications)
    ]
    failing = make_case((float("nan"), *times[1:]), application="app0", name="app0")
    return Corpus("functions", (failing, *cases[1:]))


def test_what_is_known_or_has_no_time_is_not_predicted(make_case: MakeCase) -> None:
    case = make_case((8.0, 4.0, float("nan"), 1.0))
    assert Episode(case, np.array([1])).targets.tolist() == [0, 3]


def test_serverless_a_and_b_meet_the_same_combinations(shared_data: Path) -> None:
    corpus = read_serverless(shared_data)
    first, second = synthetic_to_real(corpus), leave_functions_out(corpus)
    assert _combinations(first) == _combinations(second) == [3_696, 11_088, 18_480]
    assert {case.environment for case in first[0].training} == {"synthetic"}
    assert len(second) == 11
    for fold in second:
        assert len({case.application for case in fold.training}) == 30 + 20
    _no_application_is_trained_on_and_met(first + second)


def test_a_task_or_a_program_is_left_out_with_all_its_data(shared_data: Path) -> None:
    clouds = leave_application_out(read_multicloud(shared_data, completed_only=True))
    programs = leave_application_out(read_scout(shared_data).completed())
    assert (len(clouds), len(programs)) == (10, 8)
    draws = Counter(e.case.name for fold in clouds for e in fold.episodes[2])
    assert (len(draws), set(draws.values())) == (28, {10})
    _no_application_is_trained_on_and_met(clouds + programs)


def test_draws_follow_from_the_seed_alone(make_case: MakeCase) -> None:
    corpus = _measured(make_case)

    def draws(seed: int, within: Corpus = corpus) -> list[list[int]]:
        folds = leave_application_out(within, seed=seed)
        return [
            e.known.tolist() for f in folds for e in f.episodes[3] if e.case.label == corpus.cases[5].label
        ]

    assert draws(1) == draws(1, Corpus("functions", corpus.cases[4:8]))
    assert draws(1) != draws(2)
    assert all(len(set(known)) == 3 for known in draws(1))


def test_functions_are_left_out_in_folds_of_one_environment(make_case: MakeCase) -> None:
    folds = functions(_measured(make_case))
    assert len(folds) == 5
    _no_application_is_trained_on_and_met(folds)
    cases = [case for fold in folds for case in (*fold.training, *(e.case for e in fold.episodes[1]))]
    assert {case.environment for case in cases} == {"lambda"}
    # Eleven functions with six sizes, and one that only completed at five.
    assert _combinations(folds) == [11 * 6 * 5 + 5 * 4, 11 * 15 * 4 + 10 * 3, 11 * 20 * 3 + 10 * 2]


def test_functions_elsewhere_are_new_to_training_in_both_environments(make_case: MakeCase) -> None:
    folds = functions_elsewhere(_measured(make_case))
    _no_application_is_trained_on_and_met(folds)
    assert {case.environment for fold in folds for case in fold.training} == {"lambda"}
    assert {e.case.environment for fold in folds for e in fold.episodes[1]} == {"openwhisk"}


def test_a_case_too_short_for_so_many_known_is_left_out(make_case: MakeCase) -> None:
    corpus = Corpus("some", (make_case((2.0, 1.0)), make_case((2.0, 1.0), application="other")))
    folds = leave_application_out(corpus)
    assert [len(folds[0].episodes[k]) for k in SHOTS] == [10, 0, 0]


def test_one_application_cannot_be_left_out(make_case: MakeCase) -> None:
    with pytest.raises(BadInputError, match="resize"):
        leave_application_out(Corpus("some", (make_case(),)))


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


def _predictions(predicted: list[float], measured: list[float]) -> ScoredPredictions:
    return ScoredPredictions(("x", "x", "y")[: len(predicted)], ("a", "a", "b")[: len(predicted)],
                       np.array(predicted), np.array(measured))  # fmt: skip


def test_means_are_over_cases_and_the_median_over_predictions() -> None:
    found = score(_predictions([1.1, 1.3, 2.0], [1.0, 1.0, 1.0]))
    assert found.mean_ape == pytest.approx((0.2 + 1.0) / 2)
    assert found.median_ape == pytest.approx(0.3)
    assert found.mean_log_ratio == pytest.approx(((math.log(1.1) + math.log(1.3)) / 2 + math.log(2)) / 2)
    assert found.standard_error == pytest.approx(0.4)
    assert found.predictions == 3


def test_twice_and_half_are_as_far_off_in_log_ratio() -> None:
    twice, half = (score(_predictions([p], [1.0])).mean_log_ratio for p in (2.0, 0.5))
    assert twice == half == pytest.approx(math.log(2))


def test_one_application_has_no_standard_error() -> None:
    assert math.isnan(score(_predictions([1.0, 2.0], [1.0, 1.0])).standard_error)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_prediction_that_is_no_time_is_refused(wrong: float) -> None:
    with pytest.raises(BadInputError):
        score(_predictions([1.0, wrong], [1.0, 1.0]))


def test_nothing_cannot_be_scored() -> None:
    with pytest.raises(BadInputError):
        score(_predictions([], []))


ROW: dict[str, Any] = {
    "source": "real",
    "runtime": "python",
    "app": "matmul",
    "memory_mb": 128,
    "repetition": 0,
    "dur_mean": 500.0,
    "dur_median": 450.0,
    "dur_std": 100.0,
    "dur_min": 400.0,
    "userDiff_mean": 250_000.0,
    "sysDiff_mean": 50_000.0,
    "vContextSwitches_mean": 5.0,
    "ivContextSwitches_mean": 1.0,
    "fsRead_mean": 2.0,
    "fsWrite_mean": 1.0,
    "netByRx_mean": 100.0,
    "netByTx_mean": 50.0,
    "heapUsed_mean": 1e6,
    "maxRss_mean": 1024.0,
    "rss_mean": 7.0,
}
FILE = "serverless_memory.csv"


def test_metrics_are_per_second_of_run_time(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    in_node = {**ROW, "source": "synthetic", "runtime": "nodejs", "rss_mean": 2.0**25}
    write_csv(tmp_path / FILE, [ROW, in_node, {**ROW, "repetition": 1}])
    python, node, other = read_serverless(tmp_path).cases
    assert (python.application, python.name, python.environment) == ("real/matmul", "matmul-0", "real")
    assert (node.application, node.environment) == ("synthetic/matmul", "synthetic")
    assert other.name == "matmul-1"
    assert python.configurations == ("128MB",)
    shown = {"cpu_user": 0.5, "context_switches": 10.0, "bytes_read": 2048.0, "memory_used": 2.0**20}
    shown |= {"seconds_median": 0.9, "seconds_deviation": 0.2, "seconds_least": 0.8}
    assert {name: python.metric(name)[0] for name in shown} == shown
    assert node.metric("memory_fraction")[0] == 0.25


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"dur_mean": 0}, r"line 3, column dur_mean.*'0'"),
        ({"memory_mb": "128m"}, r"line 3, column memory_mb.*'128m'"),
        ({"app": ""}, "line 3, column app"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], place: str
) -> None:
    write_csv(tmp_path / FILE, [ROW, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=place):
        read_serverless(tmp_path)


def test_a_missing_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=FILE):
        read_serverless(tmp_path)
    write_csv(tmp_path / FILE, [ROW], without="dur_mean")
    with pytest.raises(BadInputError, match="dur_mean"):
        read_serverless(tmp_path)


def test_the_published_file_has_66_real_cases_and_30_synthetic(shared_data: Path) -> None:
    corpus = read_serverless(shared_data)
    assert [len(corpus.within(where).cases) for where in ("real", "synthetic")] == [66, 30]
    assert len(corpus.within("real").applications) == 22
