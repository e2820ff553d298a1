"""Sizing policies: who is idle ends at its floor, who is held back gets more while there is some."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.resize import POLICIES, CpuPeriod, CpuPolicy, Escra, Tracking, Wishes, fair_limits, floors_within

DYNAMIC = ("trimtab", "escra")
CAP = np.array([4.0])


def _period(limit: object, used: object, throttled: object, floor: float = 0.05, **more: object) -> CpuPeriod:
    limits = np.atleast_1d(np.asarray(limit, dtype=float))
    count = len(limits)
    period = CpuPeriod(
        seconds=0.1,
        slot=np.arange(count),
        pool=np.zeros(count, dtype=np.intp),
        limit=limits,
        used=np.broadcast_to(np.asarray(used, dtype=float), count).copy(),
        throttled=np.broadcast_to(np.asarray(throttled, dtype=bool), count).copy(),
        floor=np.full(count, floor),
        cap=CAP,
    )
    return replace(period, **more)  # type: ignore[arg-type]


def _next(policy: CpuPolicy, period: CpuPeriod) -> np.ndarray:
    floor = floors_within(period.floor, period.pool, period.cap)
    return fair_limits(Wishes.of(policy.target(period)).cpus, floor, period.pool, period.cap)


def _live(policy: CpuPolicy, demand: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Limits over time of containers that would use `demand` (a row per period) if they were let."""
    shown = []
    for wish in demand:
        used = np.minimum(wish, limit)
        limit = _next(policy, _period(limit, used, wish > limit))
        shown.append(limit)
    return np.array(shown)


@pytest.mark.parametrize("name", DYNAMIC)
def test_an_idle_container_shrinks_to_its_floor(name: str) -> None:
    limits = _live(POLICIES[name](), np.zeros((300, 1)), np.array([2.0]))
    within = 0.05 if name == "trimtab" else 0.05 + Escra().settings.slack * CAP[0]
    assert limits[-1, 0] <= within + 1e-6
    assert (np.diff(limits[:, 0]) <= 1e-9).all()


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_throttled_container_grows_while_the_pool_has_room(name: str) -> None:
    limits = _live(POLICIES[name](), np.full((40, 1), 3.0), np.array([0.1]))
    assert limits[-1, 0] >= 3.0
    short = limits[:, 0] < 3.0 - 1e-9
    assert (np.diff(limits[:, 0])[short[:-1]] > 0).all()


def test_ours_meets_a_burst_seen_before_after_a_single_throttle() -> None:
    policy = Tracking()
    calm, burst = np.full((200, 1), 0.1), np.full((10, 1), 2.0)
    limits = _live(policy, np.concatenate([burst, calm, burst]), np.array([4.0]))[:, 0]
    assert limits[209] < 0.25
    assert limits[210] >= 2.0  # right after the first period of the second burst


def test_ours_needs_fewer_periods_for_a_new_burst_than_the_paper() -> None:
    demand = np.concatenate([np.full((40, 2), 0.1), np.full((40, 2), [[1.5, 0.1]])])

    def held_back(policy: CpuPolicy) -> int:
        return int((_live(policy, demand, np.array([2.0, 2.0]))[40:, 0] < 1.5).sum())

    assert held_back(Tracking()) <= held_back(Escra())
    assert held_back(Tracking()) <= 3


def test_ours_stays_above_the_recent_peak_by_its_headroom() -> None:
    limits = _live(Tracking(), np.full((100, 1), 1.0), np.array([4.0]))[:, 0]
    assert limits[-1] == pytest.approx(1 + Tracking().settings.headroom, rel=0.06)
    assert (limits >= 1.0).all()


def test_a_full_pool_is_shared_fairly_by_those_held_back() -> None:
    limits = _live(Tracking(), np.full((60, 3), [[0.5, 6.0, 6.0]]), np.array([1.3, 1.3, 1.3]))[-1]
    assert limits[0] >= 0.5
    assert limits[1] == pytest.approx(limits[2])
    assert limits.sum() == pytest.approx(CAP[0])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_whoever_comes_later_into_a_slot_starts_afresh(name: str) -> None:
    used, fresh = POLICIES[name](), POLICIES[name]()
    _live(used, np.full((30, 2), 3.0), np.array([1.0, 1.0]))
    used.forget(np.array([0, 1]))
    calm = np.full((5, 2), 0.2)
    np.testing.assert_allclose(
        _live(used, calm, np.array([1.0, 1.0])), _live(fresh, calm, np.array([1.0, 1.0]))
    )


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 2**32 - 1))
def test_whatever_the_telemetry_says_sums_fit_caps_and_limits_floors(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    policy = POLICIES[name]()
    pool, cap = random.integers(0, 3, 9), random.uniform(0.1, 8.0, 3)
    floor = floors_within(random.uniform(0.0, 0.2, 9), pool, cap)
    limit = fair_limits(np.full(9, 10.0), floor, pool, cap)
    for _ in range(12):
        used = np.maximum(limit * random.uniform(-0.5, 3.0, 9), 0.0)  # clocks jump
        period = CpuPeriod(0.1, np.arange(9), pool, limit, used, random.random(9) < 0.5, floor, cap)
        limit = fair_limits(Wishes.of(policy.target(period)).cpus, floor, pool, cap)
        assert np.isfinite(limit).all()
        assert (limit >= floor - 1e-12).all()
        assert (np.bincount(pool, limit, 3) <= cap * (1 + 1e-9)).all()
