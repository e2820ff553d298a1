"""The rule from the local run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.jobs.training import Configurations, DataSet, LocalJob, LocalRun, Rule
from trimtab.predict.jobs.training.rule import ring_share


def _where(cpus: float, workers: float, batch: float, memory: float = 1e9) -> Configurations:
    one = np.ones(1)
    return Configurations(("a",), cpus * one, memory * one, workers * one, batch * one, 0.01 * one)


def test_lines_find_what_the_runs_are_made_of(data: DataSet) -> None:
    rule = Rule.of(data.job("dense"))
    assert rule.cpu.fixed == pytest.approx(2.0e-3)
    assert rule.cpu.sample == pytest.approx(0.06e-3)
    assert rule.cpu.exchange == pytest.approx(16e-3)
    assert rule.gradient_bytes == pytest.approx(16e6)


def test_a_step_takes_its_cpu_seconds_over_the_quota_but_not_less_than_without_limits(
    data: DataSet,
) -> None:
    rule = Rule.of(data.job("words"))
    cpu = 3.0e-3 + 16 * 0.02e-3
    assert rule.step_seconds(_where(0.1, 1, 16)) == pytest.approx([cpu / 0.1])
    assert rule.step_seconds(_where(8.0, 1, 16)) == pytest.approx([1.05 * cpu])
    four = rule.step_seconds(_where(0.1, 4, 16))
    assert four == pytest.approx([(cpu + 1.5 * 4e-3) / 0.1])


def test_memory_is_the_local_peak(data: DataSet) -> None:
    rule = Rule.of(data.job("pictures"))
    assert rule.memory_bytes(_where(0.1, 1, 64)) == pytest.approx([380 * 2**20])
    assert rule.fits(_where(0.1, 1, 64, memory=381 * 2**20)) == [1.0]
    assert rule.fits(_where(0.1, 1, 64, memory=379 * 2**20)) == [0.0]


@given(st.floats(1e-4, 0.1), st.floats(0, 0.01), st.floats(0, 0.1), st.integers(1, 64), st.floats(0.05, 4.0))
def test_more_work_never_takes_less_and_more_cpus_never_more(
    fixed: float, sample: float, exchange: float, batch: int, cpus: float
) -> None:
    runs = []
    for size in (8.0, 32.0):
        for workers in (1.0, 2.0):
            cpu = fixed + sample * size + exchange * float(ring_share(workers))
            runs.append(LocalRun(size, workers, cpu, cpu, 1e8, 0.0, {}))
    rule = Rule.of(LocalJob("j", None, tuple(runs)))  # type: ignore[arg-type]
    here = rule.step_seconds(_where(cpus, 2, batch))[0]
    assert rule.step_seconds(_where(cpus, 2, batch + 1))[0] >= here * (1 - 1e-9)
    assert rule.step_seconds(_where(cpus, 4, batch))[0] >= here * (1 - 1e-9)
    assert rule.step_seconds(_where(2 * cpus, 2, batch))[0] <= here * (1 + 1e-9)


def test_one_run_is_not_enough(data: DataSet) -> None:
    job = data.job("words")
    with pytest.raises(BadInputError, match="run it with two batch sizes at least"):
        Rule.of(replace(job, runs=job.runs[:1]))
