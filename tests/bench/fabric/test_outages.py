"""A real lab, a real fault, real probes: an outage is seen, and nothing is left."""

import os
from typing import Any, Self

import pytest
from trimtab_bench.fabric import outages
from trimtab_bench.fabric.outages import measure_outages
from trimtab_bench.fabric.variants import VARIANTS, Variant

from trimtab.core import TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.journal import RUN
from trimtab.fabric.lab.faults import Fault
from trimtab.fabric.lab.probes import Outage
from trimtab.fabric.machine import NAMESPACES
from trimtab.kernel import Owner, find_hierarchy

SLOW = Timers(interval=0.1, multiplier=3, hold=0.1)
"""Slow enough for sessions to stay up on a machine that does much else."""


def left_behind() -> list[str]:
    hierarchy = find_hierarchy()
    folders = [NAMESPACES, RUN, *(hierarchy.folders.values() if hierarchy else ())]
    names = [name for folder in folders if folder.exists() for name in os.listdir(folder)]
    return [name for name in names if (owner := Owner.of(name)) is not None and owner.pid == os.getpid()]


class Scripted:
    """A contestant whose faults do what the test says: seconds of outage, or None where no probes are."""

    def __init__(self, *script: float | None) -> None:
        self.script = list(script)
        self.restored = 0
        self.labs = 1

    def __call__(self, variant: object, precedence: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def fault(self, kind: str, host: int) -> Fault | None:
        if self.script[0] is None:
            self.script.pop(0)
            return None
        return Fault(kind, lambda: None, lambda: None)

    def measure(self, fault: Fault, lasting: float) -> Outage:
        seconds = self.script.pop(0) or 0.0
        return Outage((0.0, seconds), round(seconds * 1e3), 0.001)

    def restore(self) -> None:
        self.restored += 1


def scripted(monkeypatch: pytest.MonkeyPatch, fault: str, *script: float | None) -> dict[str, Any]:
    contestant = Scripted(*script)
    monkeypatch.setattr(outages, "Contestant", contestant)
    told = measure_outages("ours", fault, 2)
    assert contestant.restored == len(script) - 1
    return told


def test_a_silent_fault_that_hit_nothing_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = scripted(monkeypatch, "blackhole", 0.0, 0.03, None, 0.04)
    assert [(each["place"], each["ms"]) for each in told["repeats"]] == [("sender", 30.0), ("receiver", 40.0)]
    assert told["missed"] == 2


def test_a_port_turned_off_without_a_loss_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    told = scripted(monkeypatch, "link-down", 0.0, 0.004)
    assert [each["ms"] for each in told["repeats"]] == [0.0, 4.0]
    assert told["missed"] == 0


def test_probes_that_are_nowhere_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrimtabError, match=r"ours.*blackhole"):
        scripted(monkeypatch, "blackhole", *[None] * 7)


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
