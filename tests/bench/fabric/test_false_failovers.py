"""Failovers and sessions that go down are counted, whoever's they are."""

import time

from trimtab_bench.fabric.false_failovers import failovers_so_far, sessions_down_so_far
from trimtab_bench.fabric.variants import all_paths_in_use

from trimtab.fabric.lab.lab import Lab


def test_a_fault_counts_as_failover_and_as_sessions_down_at_both_ends(lab: Lab) -> None:
    moved, down = failovers_so_far(lab), sessions_down_so_far(lab)
    with lab.fault("blackhole", 0, "p1"):
        give_up = time.monotonic() + 30
        while sessions_down_so_far(lab) < down + 2:
            assert time.monotonic() < give_up, "both ends of the cable must notice"
            time.sleep(0.1)
    assert failovers_so_far(lab) >= moved + 1
    give_up = time.monotonic() + 40
    while not all_paths_in_use(lab):
        assert time.monotonic() < give_up, "others want it whole"
        time.sleep(0.1)
