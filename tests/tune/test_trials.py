"""Trials on this machine, and how far off the mean of a few steps may be."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from measured_jobs import write_spec

from trimtab.collect import Shape, Turn, read_spec
from trimtab.tune.job_space import Setup
from trimtab.tune.trials import ThisMachine, TrialWindow, standard_error, try_out


def turn(durations: list[float]) -> Turn:
    return Turn(tuple(durations), (1.0,) * len(durations), 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)


@pytest.mark.usefixtures("limits")
def test_a_trial_here_is_held_to_its_shape(tmp_path: Path) -> None:
    spec = read_spec(write_spec(tmp_path))
    setup = Setup(Shape("half", 0.1, 200 * 2.0**20, 0.01), 2, 8)
    asked: list[float] = []

    def worth(short: Turn) -> bool:
        asked.append(short.step_seconds)
        return True

    trial = try_out(ThisMachine(), spec.job("tune-me"), setup, TrialWindow(1.0, 20.0), worth)
    assert (trial.status, trial.fidelity, len(asked)) == ("ok", 1.0, 1), trial.reason
    assert trial.step_seconds == pytest.approx(0.0036 / 0.1, rel=0.6)
    assert trial.memory_peak_bytes
    assert 0 < trial.memory_peak_bytes < 200 * 2**20


@pytest.mark.usefixtures("limits")
def test_what_has_too_little_memory_here_is_said_so(tmp_path: Path) -> None:
    spec = read_spec(write_spec(tmp_path, "greedy"))
    setup = Setup(Shape("half", 0.5, 200 * 2.0**20, 0.01), 1, 8)
    trial = try_out(ThisMachine(), spec.job("tune-me"), setup, TrialWindow(0.5, 20.0), lambda turn: True)
    assert trial.status == "out-of-memory"
    assert trial.reason


@given(st.floats(1e-3, 10), st.integers(2, 300))
def test_equal_steps_leave_no_doubt(seconds: float, count: int) -> None:
    assert standard_error([turn([seconds] * count)]) == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(1e-3, 10), min_size=1, max_size=60), st.floats(0.1, 100))
def test_the_unit_of_time_does_not_matter(durations: list[float], scale: float) -> None:
    once = standard_error([turn(durations)])
    scaled = standard_error([turn([scale * each for each in durations])])
    assert scaled == pytest.approx(once, rel=1e-6, abs=1e-9)


def test_one_step_says_next_to_nothing() -> None:
    assert standard_error([turn([1.0])]) == 1.0


def test_steps_that_share_a_quota_leave_less_doubt_than_their_spread() -> None:
    quota = [0.01, 0.01, 0.08] * 40  # two fast ones, then the quota is used up
    spread = float(np.std(quota) / np.mean(quota) / np.sqrt(len(quota)))
    assert standard_error([turn(quota)]) < spread / 2


def test_longer_looks_leave_less_doubt() -> None:
    random = np.random.default_rng(0)
    errors = [
        np.mean([standard_error([turn(list(random.gamma(20, 0.001, count)))]) for _ in range(30)])
        for count in (16, 64, 256)
    ]
    assert all(longer < shorter for shorter, longer in pairwise(errors))
