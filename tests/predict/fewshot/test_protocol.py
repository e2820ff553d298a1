from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Case, Corpus, Fold, multicloud, scout, serverless
from trimtab.predict.fewshot.protocol import (
    SHOTS,
    Episode,
    functions,
    functions_elsewhere,
    leave_application_out,
    leave_functions_out,
    synthetic_to_real,
)

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
    corpus = serverless.read(shared_data)
    first, second = synthetic_to_real(corpus), leave_functions_out(corpus)
    assert _combinations(first) == _combinations(second) == [3_696, 11_088, 18_480]
    assert {case.environment for case in first[0].training} == {"synthetic"}
    assert len(second) == 11
    for fold in second:
        assert len({case.application for case in fold.training}) == 30 + 20
    _no_application_is_trained_on_and_met(first + second)


def test_a_task_or_a_program_is_left_out_with_all_its_data(shared_data: Path) -> None:
    clouds = leave_application_out(multicloud.read(shared_data, completed_only=True))
    programs = leave_application_out(scout.read(shared_data).completed())
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
    with pytest.raises(BadInputError, match="without resize there is no case left to train on"):
        leave_application_out(Corpus("some", (make_case(),)))
