from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench import fewshot_protocol as protocol
from trimtab_bench.fewshot_protocol import ScoredPredictions, predictions, score

from trimtab.core import BadInputError, TrimtabError
from trimtab.predict.fewshot.blend import Blend, FittedBlend
from trimtab.predict.fewshot.case import Case, Corpus, metrics_table, settings_table
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.forest import ForestPredictor, ForestSettings
from trimtab.predict.fewshot.rules import MEDIAN_RATIO, MeanOfKnown, Stretch

MakeCase = Callable[..., Case]
SHARES = np.array([0.07, 0.14, 0.29, 0.58, 1.2])
SETTINGS = settings_table(5, memory_bytes=2.0 ** np.arange(27, 32), cpus=SHARES)
SMALL = Blend(
    members=(Curves(), ForestPredictor(ForestSettings(trees=8), sets_per_case=8)),
    rules=(MEDIAN_RATIO, Stretch()),
    episodes=60,
)
KNOWN = np.array([1, 3])


@pytest.fixture(scope="module", autouse=True)
def _scikit_learn() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")


def _functions(make_case: MakeCase, count: int, seed: int, noise: float = 0.1) -> list[Case]:
    """Idle time stays, work stretches with the share, and no measurement is exact."""
    random = np.random.default_rng(seed)
    cases = []
    for i in range(count):
        idle, work = np.exp(random.normal(size=2))
        seconds = (idle + work / np.minimum(SHARES, 1.0)) * np.exp(random.normal(0.0, noise, 5))
        metrics = metrics_table(5, cpu_user=work / seconds, memory_used=2.0**26)
        cases.append(
            make_case(seconds, application=f"f{seed}-{i:02}", name="", settings=SETTINGS, metrics=metrics)
        )
    return cases


@pytest.fixture(scope="module")
def fitted(make_case: MakeCase) -> FittedBlend:
    return SMALL.fit(_functions(make_case, 20, seed=0))


@pytest.fixture(scope="module")
def fold(make_case: MakeCase) -> protocol.Fold:
    """Twenty functions to train on and twelve to meet, all by the same law."""
    training, met = _functions(make_case, 20, seed=0), _functions(make_case, 12, seed=1)
    alone = protocol.leave_application_out(Corpus("made up", (*training[:1], *met)), draws=5)
    episodes = {k: tuple(e for one in alone[1:] for e in one.episodes[k]) for k in protocol.SHOTS}
    return protocol.Fold("unseen", tuple(training), episodes)


@pytest.fixture(scope="module")
def met(fold: protocol.Fold) -> dict[int, ScoredPredictions]:
    return predictions(SMALL, [fold])


def test_the_shares_sum_to_one_and_none_is_negative(fitted: FittedBlend) -> None:
    assert len(fitted.shares) == len(fitted.members) == 2
    assert sum(fitted.shares) == pytest.approx(1.0)
    assert min(fitted.shares) >= 0


def test_ranges_of_unseen_applications_cover_what_they_claim(met: dict[int, ScoredPredictions]) -> None:
    assert list(met) == list(protocol.SHOTS)
    for result in met.values():
        assert result.low is not None
        assert result.high is not None
        inside = (result.low <= result.measured) & (result.measured <= result.high)
        assert 0.8 <= inside.mean() <= 1.0


def test_ranges_are_no_wider_than_the_noise_asks_for(fitted: FittedBlend, make_case: MakeCase) -> None:
    """Nine tenths of the measurements are within a factor exp(1.64 x 0.1) of the law."""
    widths = []
    for case in _functions(make_case, 12, seed=1):
        low, _, high = fitted.interval(case.known_at(KNOWN), KNOWN)
        widths.append(np.log(high / low).mean())
    assert np.mean(widths) < 6 * 1.64 * 0.1


def test_the_blend_is_about_as_good_as_the_best_of_the_rules(
    fold: protocol.Fold, met: dict[int, ScoredPredictions]
) -> None:
    ours = {k: score(result).mean_ape for k, result in met.items()}
    mean = {k: score(result).mean_ape for k, result in predictions(MeanOfKnown(), [fold]).items()}
    rule = {k: score(result).mean_ape for k, result in predictions(Stretch(), [fold]).items()}
    for k in protocol.SHOTS:
        assert ours[k] < 0.5 * mean[k]
        assert ours[k] < 1.3 * rule[k]


def test_the_answer_lies_in_its_range_and_is_the_one_predicted(
    fitted: FittedBlend, make_case: MakeCase
) -> None:
    for case in _functions(make_case, 6, seed=2):
        for known in ([0], [1, 3], [0, 2, 4], [0, 1, 2, 3]):
            low, seconds, high = fitted.interval(case, np.array(known))
            assert (low > 0).all()
            assert (low <= seconds).all()
            assert (seconds <= high).all()
            np.testing.assert_array_equal(seconds, fitted.predict(case, np.array(known)))


def test_the_backtest_tells_the_errors_of_the_blend_and_of_every_rule(fitted: FittedBlend) -> None:
    assert set(fitted.errors) == {"trimtab", "median ratio", "CPU share"}
    assert set(fitted.rules) == {"median ratio", "CPU share"}
    for by_shots in fitted.errors.values():
        assert list(by_shots) == list(protocol.SHOTS)
        assert all(0 < error < 5 for error in by_shots.values())


def test_the_backtest_foretells_the_error_on_unseen_applications(
    fitted: FittedBlend, met: dict[int, ScoredPredictions]
) -> None:
    foretold = np.mean(list(fitted.errors["trimtab"].values()))
    assert foretold == pytest.approx(np.mean([score(result).mean_ape for result in met.values()]), rel=0.6)


def test_a_member_that_promises_far_too_little_gets_no_share(make_case: MakeCase) -> None:
    class Rash:
        name = "rash"

        def suits(self, cases: object) -> bool:
            return True

        def fit(self, cases: Any) -> Any:
            right = Curves().fit(cases)

            class Fitted:
                def spread(self, case: Case, known: Any) -> Any:
                    result = right.spread(case, known)
                    return replace(result, log_seconds=result.log_seconds - 5.0)

            return Fitted()

    ours = replace(SMALL, members=(Rash(), Curves()))
    assert ours.fit(_functions(make_case, 6, seed=0)).shares == (0.0, 1.0)


def test_who_is_not_made_for_the_cases_is_left_out(make_case: MakeCase) -> None:
    class Unsuited(ForestPredictor):
        def suits(self, cases: object) -> bool:
            return False

    fitted = replace(SMALL, members=(Curves(), Unsuited())).fit(_functions(make_case, 4, seed=0))
    assert fitted.shares == (1.0,)


def test_if_no_member_is_made_for_the_cases_it_says_so(make_case: MakeCase) -> None:
    class Unsuited(ForestPredictor):
        def suits(self, cases: object) -> bool:
            return False

    with pytest.raises(TrimtabError):
        replace(SMALL, members=(Unsuited(),)).fit(_functions(make_case, 4, seed=0))


def test_one_application_alone_still_answers_with_the_widest_range(make_case: MakeCase) -> None:
    only, new = _functions(make_case, 2, seed=0)
    fitted = SMALL.fit([only])
    assert sum(fitted.shares) == pytest.approx(1.0)
    assert fitted.errors == {}, "nothing was tested"
    low, seconds, high = fitted.interval(new.known_at(KNOWN), KNOWN)
    assert np.isfinite(seconds).all()
    assert (high / low > 100).all()


def test_few_applications_are_left_out_one_by_one(make_case: MakeCase) -> None:
    fitted = SMALL.fit(_functions(make_case, 3, seed=0))
    assert set(fitted.errors) == {"trimtab", "median ratio", "CPU share"}
    assert all(margin >= 3.0 for margin in fitted.margins.values()), "three cases calibrate no range"


def test_elsewhere_members_count_the_same_and_ranges_are_wider(
    fitted: FittedBlend, make_case: MakeCase
) -> None:
    case = _functions(make_case, 1, seed=3)[0]
    abroad = replace(case, environment="elsewhere")
    both = [len(member.spread(abroad, KNOWN).weights.T) for member in fitted.members]
    assert len(fitted.spread(abroad, KNOWN).weights.T) == sum(both)
    low, seconds, high = fitted.interval(abroad, KNOWN)
    own = fitted.spread(abroad, KNOWN)
    assert (np.log(low) <= own.quantile(0.05) - 0.25 + 1e-9).all()
    assert (np.log(high) >= own.quantile(0.95) + 0.25 - 1e-9).all()
    assert ((low <= seconds) & (seconds <= high)).all()


def test_more_coverage_takes_wider_ranges(make_case: MakeCase) -> None:
    training, case = _functions(make_case, 13, seed=0), _functions(make_case, 1, seed=4)[0]
    widths = []
    for coverage in (0.5, 0.9):
        ours = replace(SMALL, members=(Curves(),), coverage=coverage)
        low, _, high = ours.fit(training).interval(case, KNOWN)
        widths.append(np.log(high / low).mean())
    assert widths[0] < widths[1]


def test_the_same_seed_gives_the_same_answers(fitted: FittedBlend, make_case: MakeCase) -> None:
    again = SMALL.fit(_functions(make_case, 20, seed=0))
    case = _functions(make_case, 1, seed=5)[0]
    assert again.shares == fitted.shares
    assert again.margins == fitted.margins
    for one, other in zip(again.interval(case, KNOWN), fitted.interval(case, KNOWN), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=20)
@given(data=st.data())
def test_hidden_runs_are_never_read(fitted: FittedBlend, make_case: MakeCase, data: st.DataObject) -> None:
    case = _functions(make_case, 1, seed=data.draw(st.integers(10, 20)))[0]
    case = replace(case, environment=data.draw(st.sampled_from(("lambda", "elsewhere"))))
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=4))))
    hidden = np.setdiff1d(np.arange(5), known)
    seconds, metrics, ok = case.seconds.copy(), case.metrics.copy(), case.ok.copy()
    seconds[hidden], metrics[hidden], ok[hidden] = data.draw(st.floats(1e-3, 1e4)), 7.0, False
    changed = replace(case, seconds=seconds, metrics=metrics, ok=ok)
    result = fitted.interval(case, known)
    for other in (changed, case.known_at(known)):
        for one, same in zip(result, fitted.interval(other, known), strict=True):
            np.testing.assert_array_equal(one, same)


def test_it_needs_a_known_run_and_a_case_to_learn_from(fitted: FittedBlend, make_case: MakeCase) -> None:
    case = _functions(make_case, 1, seed=6)[0]
    nothing = np.array([], dtype=np.intp)
    for ask in (fitted.predict, fitted.interval):
        with pytest.raises(BadInputError, match="no configuration"):
            ask(case, nothing)
    with pytest.raises(BadInputError, match="trimtab"):
        SMALL.fit([])


def test_an_application_with_one_run_does_not_keep_the_others_from_being_learned(make_case: MakeCase) -> None:
    """Left out one by one, the other application leaves nothing but a case with one run to learn from."""
    rich, poor = _functions(make_case, 2, seed=0)
    fitted = SMALL.fit([rich, poor.only([2])])
    assert np.isfinite(fitted.predict(rich, KNOWN)).all()
