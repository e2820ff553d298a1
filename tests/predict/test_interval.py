import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.predict.interval import conformal_interval, conformal_margin, conformal_rank


def test_a_margin_is_the_next_rank_of_single_scores() -> None:
    scores = np.arange(1.0, 20.0)  # 19 of them: 0.9 of 20 is the eighteenth
    assert conformal_margin(scores, 0.9) == 18.0
    assert conformal_rank(np.array([19]), 0.9) == 18


def test_too_few_groups_give_the_largest_score_and_at_least_the_widest() -> None:
    scores = np.array([0.3, 0.1, 0.2])
    assert conformal_margin(scores, 0.9) == 0.3
    assert conformal_margin(scores, 0.9, widest=3.0) == 3.0
    assert conformal_margin(np.array([5.0, 1.0]), 0.9, widest=3.0) == 5.0
    assert conformal_interval(scores, 0.9) == (0.1, 0.3)


def test_every_group_counts_the_same() -> None:
    scores = np.concatenate([np.full(1000, 9.0), np.arange(1.0, 40.0)])
    groups = ["large"] * 1000 + [f"small {number}" for number in range(39)]
    assert conformal_margin(scores, 0.5, groups) < 30.0  # a thousand nines are one group of forty


def test_an_interval_leaves_as_much_out_on_either_side() -> None:
    values = np.arange(1.0, 100.0)
    low, high = conformal_interval(values, 0.9)
    assert (low, high) == (5.0, 95.0)
    assert conformal_rank(np.array([99]), 0.05) == low
    assert conformal_rank(np.array([99]), 0.95) == high


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), coverage=st.sampled_from([0.5, 0.8, 0.9]))
def test_new_values_are_covered_as_promised(seed: int, coverage: float) -> None:
    random = np.random.default_rng(seed)
    held = [random.normal() <= conformal_margin(random.normal(size=30), coverage) for _ in range(400)]
    assert np.mean(held) == pytest.approx(coverage + 1 / 62, abs=0.09)
