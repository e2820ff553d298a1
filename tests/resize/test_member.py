"""A container's quota within its limit, in a real control group."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from trimtab.kernel import ContainerGroup, Hierarchy, LimitedGroup, SafeLimits
from trimtab.resize import Container
from trimtab.resize.member import ManagedContainer

Make = Callable[..., ManagedContainer]


@pytest.fixture
def own(new_group: Callable[..., LimitedGroup]) -> LimitedGroup:
    return new_group()


@pytest.fixture
def make(own: LimitedGroup) -> Iterator[Make]:
    folder = next(iter(own.folders.values()))
    hierarchy = Hierarchy(own.version, {name: path.parent for name, path in own.folders.items()})
    with ContainerGroup(hierarchy, f"/{folder.name}") as group:

        def member(saves: bool = True) -> ManagedContainer:
            safe = SafeLimits(group.path, None, None)
            return ManagedContainer(Container(group.path), group, 0, 0, safe, group.cpu(), saves=saves)

        yield member


def _used(member: ManagedContainer, cpus: float, held_back: bool = False, looks: int = 100) -> None:
    for _ in range(looks):
        member.observe(cpus, held_back, 0.87)


def test_a_quota_is_a_little_above_the_mean_and_the_rest_may_be_saved_up(make: Make) -> None:
    member = make()
    _used(member, 0.3)
    member.limit_cpus(0.6)
    quota = member.group.cpu_limit()
    assert quota is not None
    assert 0.3 < quota < 0.45
    assert quota + member.group.saved_limit() == pytest.approx(0.6, abs=1e-4)


def test_nobody_saves_more_than_its_quota(make: Make) -> None:
    member = make()
    _used(member, 0.1)
    member.limit_cpus(2.0)
    assert member.group.saved_limit() == pytest.approx(member.group.cpu_limit())
    _used(member, 0.5)
    member.trim()
    assert member.group.saved_limit() == pytest.approx(member.group.cpu_limit())


def test_who_was_held_back_has_all_of_its_limit(make: Make) -> None:
    member = make()
    _used(member, 0.1)
    member.limit_cpus(0.6)
    member.observe(0.2, throttled=True, decay=0.87)
    member.trim()
    assert member.group.cpu_limit() == pytest.approx(0.6)
    assert member.group.saved_limit() == 0


def test_without_saving_the_quota_is_the_limit(make: Make) -> None:
    member = make(saves=False)
    _used(member, 0.1)
    member.limit_cpus(0.6)
    member.trim()
    assert member.group.cpu_limit() == pytest.approx(0.6)


def test_who_suddenly_works_borrows_what_others_leave_until_the_next_glance(
    make: Make, own: LimitedGroup
) -> None:
    member = make()
    _used(member, 0.05)
    member.limit_cpus(0.1)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    spare = 0.4
    try:
        own.add(child.pid)
        while spare == 0.4:
            time.sleep(0.025)
            spare = member.glance(time.monotonic(), 0.4)
    finally:
        child.kill()
        child.wait()
    assert 0.1 < member.committed <= 0.1 + 0.4
    assert spare + member.committed <= 0.1 + 0.4 + 1e-6
    later = time.monotonic() + 0.3  # more than a period
    assert member.glance(later, spare) + member.committed == pytest.approx(0.5, abs=1e-3)
    assert member.committed <= 0.1 + 1e-6


def test_who_only_sleeps_borrows_nothing(make: Make) -> None:
    member = make()
    _used(member, 0.05)
    member.limit_cpus(0.6)
    quota = member.group.cpu_limit()
    start = time.monotonic()
    for turn in range(20):
        assert member.glance(start + 0.01 * turn, 0.5) == 0.5
    assert member.group.cpu_limit() == quota
