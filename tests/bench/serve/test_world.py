"""Ids of what is in the store can be told from their numbers, and no two are alike."""

from hypothesis import given, strategies as st
from trimtab_bench.serve import world


def test_ids_differ_and_are_as_long_as_real_ones() -> None:
    jobs = {world.job_id(number) for number in range(10_000)}
    decisions = {world.decision_id(number) for number in range(10_000)}
    assert len(jobs) == len(decisions) == 10_000
    assert {len(id) for id in jobs} == {8}
    assert {len(id) for id in decisions} == {12}


@given(st.integers(0, world.TENANTS - 1), st.floats(0.0, 1.0), st.integers(world.TENANTS, 10**6))
def test_a_tenants_nth_thing_is_its_own_and_there(whose: int, place: float, count: int) -> None:
    number = world.nth_of(whose, place, count)
    assert 0 <= number < count
    assert world.tenant(number) == world.tenant(whose)


@given(st.none() | st.integers(0, world.TENANTS - 1), st.integers(2 * world.TENANTS, 10**6))
def test_after_what_is_nearly_last_there_is_one_page_and_it_is_not_empty(
    whose: int | None, count: int
) -> None:
    number = world.nearly_last(whose, 30, count)
    own = range(whose or 0, number, 1 if whose is None else world.TENANTS)
    assert 0 < len(own) <= 30
    assert number < count


def test_every_tenant_has_decisions_of_every_kind_and_subjects_of_its_own() -> None:
    numbers = range(10_000)
    kinds = {(world.tenant(n), world.decision_kind(n)) for n in numbers}
    assert len(kinds) == world.TENANTS * len(world.DECISION_KINDS)
    assert len({(world.tenant(n), world.subject(n)) for n in numbers}) == world.SUBJECTS
