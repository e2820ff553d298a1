"""A real lab, a real fault, real probes: an outage is seen, and nothing is left."""

import os

import pytest

from trimtab.bench.fabric.outages import measure_outages
from trimtab.bench.fabric.variants import VARIANTS, Variant
from trimtab.fabric import Timers
from trimtab.fabric.journal import RUN
from trimtab.fabric.machine import NAMESPACES
from trimtab.kernel import Owner, find_hierarchy

SLOW = Timers(interval=0.1, multiplier=3, hold=0.1)
"""Slow enough for sessions to stay up on a machine that does much else."""


def left_behind() -> list[str]:
    hierarchy = find_hierarchy()
    folders = [NAMESPACES, RUN, *(hierarchy.folders.values() if hierarchy else ())]
    names = [name for folder in folders if folder.exists() for name in os.listdir(folder)]
    return [name for name in names if (owner := Owner.of(name)) is not None and owner.pid == os.getpid()]


@pytest.mark.usefixtures("can_build")
def test_a_silent_fault_is_survived_by_ours_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = left_behind()
    monkeypatch.setitem(VARIANTS, "ours", Variant(SLOW, agents=True))
    told = measure_outages("ours", "blackhole", 1)
    (only,) = told["repeats"]
    assert only["place"] == "sender"
    assert only["flows_hit"] >= 1, "the fault must be where probes are"
    assert 0 < only["ms"] < 550, "the other path is taken before the fault is mended"
    assert only["lost"] > 0
    assert told["labs"] == 1
    assert left_behind() == before


@pytest.mark.usefixtures("can_build")
def test_a_worker_bound_to_one_port_is_gone_as_long_as_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VARIANTS, "single_port", Variant(SLOW, single_port=True))
    told = measure_outages("single_port", "link-down", 2)
    assert [each["place"] for each in told["repeats"]] == ["sender", "receiver"]
    assert all(each["ms"] > 570 and each["flows_hit"] == 8 for each in told["repeats"])
    assert told["labs"] == 1, "the port is used again once it is back"
