"""The schedule of faults: equal for equal seeds, and every kind comes."""

from collections import Counter

import pytest
from trimtab_bench.chaos.plan import DATABASE, FAULTS_PER_MINUTE, STORES, WRITER, fault_plan

HOUR = 3600.0


@pytest.mark.parametrize("store", STORES)
def test_a_seed_determines_the_faults(store: str) -> None:
    assert fault_plan(7, store, 600.0) == fault_plan(7, store, 600.0)
    assert fault_plan(7, store, 600.0) != fault_plan(8, store, 600.0)
    assert fault_plan(7, store, 600.0)[:12] == fault_plan(7, store, 60.0)


@pytest.mark.parametrize("store", STORES)
def test_an_hour_has_faults_in_order_and_enough_of_them(store: str) -> None:
    plan = fault_plan(0, store, HOUR)
    assert len(plan) == 60 * FAULTS_PER_MINUTE
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert 0 <= plan[0].at <= plan[-1].at < HOUR
    least = Counter((fault.kind, fault.target) for fault in plan).most_common()[-1]
    assert least[1] >= 10


def test_a_store_gets_only_faults_that_it_can_have() -> None:
    assert DATABASE not in {fault.kind for fault in fault_plan(0, "sqlite", HOUR)}
    assert WRITER not in {fault.target for fault in fault_plan(0, "postgresql", HOUR)}
