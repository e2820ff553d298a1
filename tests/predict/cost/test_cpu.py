from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import Model
from trimtab.predict import cpu_step_time, demand_of
from trimtab.predict.cost.cpu import CpuConstants

Make = Callable[..., Model]


@given(cores=st.floats(0.1, 256), more=st.floats(0, 256), batch=st.integers(1, 1024))
def test_more_cores_are_never_slower(make_model: Make, cores: float, more: float, batch: int) -> None:
    ask = demand_of(make_model(rnn=2), float(batch))
    assert cpu_step_time(ask, cores + more).total <= cpu_step_time(ask, cores).total


@given(cores=st.floats(0.1, 256), batch=st.integers(1, 1024))
def test_twice_the_cores_are_less_than_twice_as_fast(make_model: Make, cores: float, batch: int) -> None:
    ask = demand_of(make_model(), float(batch))
    assert cpu_step_time(ask, 2 * cores).total > cpu_step_time(ask, cores).total / 2


@given(cores=st.floats(0.1, 256), batch=st.integers(1, 1024))
def test_the_parts_add_up(make_model: Make, cores: float, batch: int) -> None:
    time = cpu_step_time(demand_of(make_model(rnn=1), float(batch)), cores)
    assert time.launch + time.compute + time.traffic + time.update == pytest.approx(time.total)
    assert min(time.launch, time.compute, time.traffic, time.update) > 0


@given(batch=st.integers(1, 1024), more=st.integers(0, 1024))
def test_a_larger_batch_is_never_faster(make_model: Make, batch: int, more: int) -> None:
    times = cpu_step_time(demand_of(make_model(), np.array([batch, batch + more], float)), 4.0)
    assert times.total[0] <= times.total[1]


def test_everything_a_step_asks_for_takes_its_time(make_model: Make) -> None:
    ask = demand_of(make_model(attention=3, rnn=2), 8.0)
    # Marks of kernels that are slow on accelerators, no work of their own.
    left_out = {"grouped_flop", "conv_weight_bytes", "training", "half"}
    for f in fields(ask):
        more = cpu_step_time(replace(ask, **{f.name: 2.0 * getattr(ask, f.name)}), 4.0).total
        assert (more > cpu_step_time(ask, 4.0).total) == (f.name not in left_out)


def test_dispatching_is_not_shared_by_the_cores_and_the_rest_is(make_model: Make) -> None:
    ask = demand_of(make_model(), 8.0)
    one, many = (cpu_step_time(ask, n, CpuConstants(scaling=1.0)) for n in (1.0, 8.0))
    assert many.launch == one.launch
    for part in ("compute", "traffic", "update"):
        assert getattr(many, part) == pytest.approx(getattr(one, part) / 8)


def test_many_sizes_of_machine_at_once(make_model: Make) -> None:
    ask, cores = demand_of(make_model(), 8.0), np.array([1.0, 2.0, 96.0])
    at_once = np.asarray(cpu_step_time(ask, cores).total).tolist()
    assert at_once == pytest.approx([float(cpu_step_time(ask, float(n)).total) for n in cores])
