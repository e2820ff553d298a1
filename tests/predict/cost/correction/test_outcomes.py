"""What earlier runs say: they pull the answer towards themselves, less the less alike, and never too far."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from trimtab.predict.cost.correction.outcomes import (
    BELIEVED,
    MOST_RUNS,
    PastRun,
    Setting,
    Spread,
    fit_spread,
    hindsight,
)

SPREAD = Spread(total=0.056, configuration=0.011, number_format=0.004, doubling=0.004)
HERE = Setting("H200", 1.0, 32.0, False)


def run(ratio: float, setting: Setting = HERE, noise: float = 0.0) -> PastRun:
    return PastRun(setting, ratio, noise)


ratios = st.floats(1e-6, 1e6, allow_nan=False)
settings = st.builds(
    Setting,
    st.sampled_from(["H200", "A100"]),
    st.sampled_from([1.0, 8.0]),
    st.sampled_from([1.0, 32.0, 4096.0]),
    st.booleans(),
    st.sampled_from([0.5, 1.0, 1.7]),
)


@given(st.lists(st.tuples(ratios, settings), min_size=1, max_size=MOST_RUNS), settings)
def test_whatever_the_runs_the_answer_is_finite_and_within_the_believable(
    told: list[tuple[float, Setting]], target: Setting
) -> None:
    found = hindsight(SPREAD, [run(ratio, where) for ratio, where in told], [target])
    furthest = max(abs(math.log(ratio)) for ratio, _ in told)
    wider = max(
        1.0, target.width / min(where.width for _, where in told)
    )  # less certain, so it moves further
    assert abs(found.mean[0]) <= wider * (furthest + math.log(2.0))
    assert 0.0 <= found.deviation[0] < 10.0
    assert ((found.belief >= 0) & (found.belief <= 1 + 1e-9)).all()


@given(st.floats(0.7, 2.0), settings, settings)
def test_the_answer_lies_between_the_rule_and_the_run(ratio: float, where: Setting, target: Setting) -> None:
    assume(target.width <= where.width)  # what is less certain elsewhere may move further than here
    same = hindsight(SPREAD, [run(ratio, where)], [target])
    # A workload that may be slower altogether leans the answer up by a little, even when all went as said.
    low, high = sorted((0.0, math.log(ratio)))
    assert low - 1e-9 <= same.mean[0] + 1e-9
    assert same.mean[0] <= high + 0.05


def test_the_less_alike_the_less_is_learned_and_the_wider_the_range() -> None:
    targets = [
        HERE,
        Setting("H200", 1.0, 32.0, True),
        Setting("H200", 1.0, 512.0, True),
        Setting("A100", 1.0, 512.0, True, 1.7),
    ]
    found = hindsight(SPREAD, [run(1.4)], targets)
    assert (np.diff(found.mean) <= 1e-12).all()
    assert (np.diff(found.deviation) > 0).all()
    assert found.mean[0] == pytest.approx(math.log(1.4), rel=0.25)


def test_a_device_whose_constants_were_borrowed_teaches_itself_more_than_others() -> None:
    borrowed = Setting("A100", 1.0, 32.0, False, 1.7)
    found = hindsight(SPREAD, [run(1.5, borrowed)], [borrowed, Setting("T4", 1.0, 32.0, False, 1.7)])
    assert found.mean[0] > 1.5 * found.mean[1] > 0


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.4, 3.0])
def test_what_models_and_workloads_do_is_believed(ratio: float) -> None:
    assert hindsight(SPREAD, [run(ratio)], [HERE]).belief[0] >= BELIEVED


@pytest.mark.parametrize("ratio", [8.0, 0.45])
def test_what_they_seldom_do_is_believed_when_it_happens_again(ratio: float) -> None:
    once, twice = (hindsight(SPREAD, [run(ratio)] * times, [HERE]) for times in (1, 2))
    assert once.belief[0] < BELIEVED <= twice.belief[0]


@pytest.mark.parametrize("ratio", [1000.0, 0.01])
@pytest.mark.parametrize("times", [1, 5])
def test_what_they_never_do_is_not_believed_however_often(ratio: float, times: int) -> None:
    assert hindsight(SPREAD, [run(ratio)] * times, [HERE]).belief[0] == 0.0


def test_a_noisy_run_counts_for_less() -> None:
    plain, noisy = (hindsight(SPREAD, [run(1.4, noise=n)], [HERE]) for n in (0.0, 0.5))
    assert 0 < noisy.mean[0] < plain.mean[0]
    assert noisy.deviation[0] > plain.deviation[0]


def test_the_spread_is_found_again_in_ratios_that_have_it() -> None:
    random = np.random.default_rng(1)
    models, batches, half, ratios = [], [], [], []
    for model in range(300):
        whole, by_format = random.normal(0, 0.2), random.normal(0, 0.1, 2)
        for batch in (1.0, 4.0, 16.0):
            for is_half in (False, True):
                models.append(str(model))
                batches.append(batch)
                half.append(is_half)
                ratios.append(whole + by_format[int(is_half)] + random.normal(0, 0.15))
    found = fit_spread(np.array(ratios), models, np.array(batches), np.array(half))
    assert found.total == pytest.approx(0.04 + 0.01 + 0.0225, rel=0.15)
    assert found.configuration == pytest.approx(0.0225, rel=0.15)
    assert found.number_format == pytest.approx(0.01, rel=0.3)
    assert found.doubling == pytest.approx(0.0, abs=0.001)
