"""The scale bench measures what it says it does, and leaves no group behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench import BenchOptions, resize_scale, run_bench
from trimtab_bench.resize_scale.node import felt

from trimtab.kernel import LimitedGroup, NoGroupError, Owner, find_hierarchy


@pytest.fixture
def _groups() -> None:
    try:
        with LimitedGroup.create():
            pass
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")


def _left_behind(pid: int) -> list[str]:
    hierarchy = find_hierarchy()
    assert hierarchy is not None
    names = [name for folder in hierarchy.folders.values() for name in os.listdir(folder)]
    return [name for name in names if (owner := Owner.of(name)) is not None and owner.pid == pid]


@pytest.mark.usefixtures("_groups")
def test_it_measures_every_part_and_leaves_nothing_behind() -> None:
    result = run_bench("resize-scale", BenchOptions(quick=True, quiet=True))
    figures = result.figures
    assert 0 < figures["allocator_ms_100k"] <= figures["allocator_worst_ms"]
    assert figures["allocator_steps"] >= 20
    assert 0 < figures["sample_us"] < result.baselines["opening files every time"]["sample_us"]
    assert figures["sample_ran"] > 0.9
    assert figures["oom_traps"] >= 8
    assert figures["oom_kills"] == 0
    assert 0 < figures["oom_grant_p50_ms"] <= figures["oom_grant_p99_ms"] <= figures["oom_grant_worst_ms"]
    assert result.baselines["escra"]["allocator_ms_100k"] > 0
    assert figures["answers"] == pytest.approx(figures["agents"] * figures["periods"], rel=0.1)
    assert 0 <= figures["late_periods"] <= figures["missed_periods"]
    assert 0 < figures["answer_p50_ms"] <= figures["answer_worst_ms"]
    assert 0 < figures["controller_cpus"] < 1.1
    assert _left_behind(os.getpid()) == []


def test_where_no_groups_can_be_made_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize_scale, "CONTAINERS", 1000)
    monkeypatch.setattr(resize_scale, "POOLS", 10)
    monkeypatch.delitem(resize_scale.MEASURES, "missed_periods")  # needs no groups
    monkeypatch.setattr(LimitedGroup, "create", _refuse)
    result = run_bench("resize-scale", BenchOptions(quick=True, quiet=True))
    assert "allocator_ms_100k" in result.figures
    assert not {"sample_us", "oom_grant_p99_ms"} & result.figures.keys()
    assert "no control groups are mounted" in str(result.tables)


def _refuse() -> None:
    raise NoGroupError("no control groups are mounted on this machine")


_CROWDED = """
import sys, time
from trimtab_bench.resize_scale.node import CgroupCrowd
with CgroupCrowd() as place:
    place.crowd(20)
    print("there", flush=True)
    time.sleep(60)
"""


@pytest.mark.usefixtures("_groups")
def test_an_interrupt_leaves_nothing_behind() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CROWDED],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Python hears SIGINT only where its parent does not ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        assert len(set(_left_behind(child.pid))) == 20
        child.send_signal(signal.SIGINT)
        child.wait(20)
        assert _left_behind(child.pid) == []


def test_a_wait_is_the_step_in_which_memory_was_given(tmp_path: Path) -> None:
    np.array([[0.0, 0.1], [1.0, 1.1], [2.0, 2.7], [3.0, 3.1]]).tofile(tmp_path / "steps")
    assert felt(tmp_path / "steps", [(2.5, 2.6), (2.65, 2.75), (1.0, 1.05)]) == pytest.approx([0.7, 0.7, 0.1])
    assert felt(tmp_path / "steps", [(1.5, 1.6)]) == []
