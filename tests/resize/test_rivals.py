"""Rivals: percentiles of a decaying histogram, and an ensemble of arg-min models."""

import numpy as np
import pytest

from trimtab.resize import Autopilot, CpuPeriod, CpuPolicy, Vpa, VpaSettings, Wishes
from trimtab.resize.policies.vpa import Histograms

CAP = np.array([100.0])


def _live(policy: CpuPolicy, demand: np.ndarray, limit: float, seconds: float) -> np.ndarray:
    """The limit of one container after each period, if it would use `demand` and is let."""
    shown = []
    for wish in demand:
        period = CpuPeriod(
            seconds,
            np.array([0]),
            np.array([0]),
            np.array([limit]),
            np.array([min(wish, limit)]),
            np.array([wish > limit]),
            np.array([0.0]),
            CAP,
        )
        limit = float(Wishes.of(policy.target(period)).cpus[0])
        shown.append(limit)
    return np.array(shown)


def test_percentiles_are_ends_of_buckets_that_grow() -> None:
    seen = Histograms(0.01, 1.05, 100.0)
    slots = np.zeros(100, dtype=np.intp)
    seen.add(slots, np.linspace(0.01, 1.0, 100), np.ones(100))
    for level in (0.5, 0.9, 1.0):
        found = float(seen.percentile(np.array([0]), level)[0])
        assert level <= found <= level * 1.06 + 0.01
    assert seen.percentile(np.array([3]), 0.9).tolist() == [0.0]
    seen.forget(np.array([0]))
    assert seen.percentile(np.array([0]), 0.9).tolist() == [0.0]


def test_what_is_old_counts_half_after_its_half_life() -> None:
    seen = Histograms(0.01, 1.05, 100.0)
    seen.add(np.array([0, 0]), np.array([1.0, 1.0]), np.ones(2))
    seen.scale(0.5**2)
    seen.add(np.array([0]), np.array([0.1]), np.ones(1))
    assert float(seen.percentile(np.array([0]), 0.6)[0]) == pytest.approx(0.1, rel=0.15)


def test_vpa_gives_the_ninetieth_percentile_and_a_margin_once_a_minute() -> None:
    limits = _live(Vpa(), np.full(1800, 0.5), 2.0, 0.1)
    assert (limits[:599] == 2.0).all()
    assert limits[-1] == pytest.approx(0.5 * 1.15, rel=0.06)


def test_vpa_is_slow_where_use_bursts() -> None:
    policy = Vpa(VpaSettings(every=1.0))
    calm, burst = np.full(3000, 0.2), np.full(20, 2.0)
    limits = _live(policy, np.concatenate([calm, burst]), 1.0, 0.1)
    assert limits[-1] < 1.0


def test_autopilot_settles_just_above_steady_use() -> None:
    limits = _live(Autopilot(), np.full(600, 0.5), 2.0, 0.1)
    assert 0.5 <= limits[-1] <= 0.75


def test_autopilot_raises_a_limit_that_was_overrun() -> None:
    demand = np.concatenate([np.full(600, 0.2), np.full(300, 1.0)])
    limits = _live(Autopilot(), demand, 2.0, 0.1)
    assert limits[599] < 0.4
    assert limits[-1] > 2 * limits[599]
