"""What a memory size buys, and what is written to the groups for it."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.collect.functions.law import LAWS, Lambda, OpenWhisk
from trimtab.kernel import LimitedGroup


def folder_group(path: Path) -> LimitedGroup:
    path.mkdir()
    return LimitedGroup(2, {"": path})


def test_lambda_gives_one_cpu_per_1769_megabytes(tmp_path: Path) -> None:
    assert Lambda().cpus(1769, 8) == 1
    assert Lambda().cpus(10_240, 2) == 2, "no more than the host has"
    Lambda().limit(512, 2, folder_group(tmp_path / "f"))
    quota, period = (tmp_path / "f" / "cpu.max").read_text().split()
    assert int(period) == 20_000
    assert int(quota) / int(period) == pytest.approx(512 / 1769, rel=0.001)
    assert int((tmp_path / "f" / "memory.max").read_text()) == 512 * 2**20


def test_openwhisk_divides_the_pool_by_weight(tmp_path: Path) -> None:
    function, neighbours = folder_group(tmp_path / "f"), folder_group(tmp_path / "n")
    OpenWhisk().limit(1024, 2, function)
    OpenWhisk().crowd(1024, neighbours)
    mine, theirs = (int((tmp_path / name / "cpu.weight").read_text()) for name in "fn")
    assert mine / (mine + theirs) == pytest.approx(1024 / 4096, rel=0.001)
    assert not (tmp_path / "f" / "cpu.max").exists(), "no quota"
    assert int((tmp_path / "f" / "memory.max").read_text()) == 1024 * 2**20


@given(st.sampled_from(sorted(LAWS)), st.integers(16, 4000), st.integers(16, 4000), st.integers(1, 64))
def test_more_memory_never_buys_less_cpu_nor_more_than_there_is(
    name: str, one: int, other: int, host: int
) -> None:
    law = LAWS[name]
    less, more = sorted((one, other))
    assert 0 < law.cpus(less, host) <= law.cpus(more, host) <= host


def test_a_head_start_is_where_a_quota_stops_one_thread() -> None:
    assert Lambda().head_start(128, 2) == 0.004, "the kernel looks only so often"
    assert Lambda().head_start(1024, 2) == pytest.approx(0.02 * 1024 / 1769)
    assert Lambda().head_start(2048, 2) == 0
    assert OpenWhisk().head_start(128, 2) == 0


def test_turns_are_long_where_their_beginning_matters() -> None:
    assert Lambda().least_turn(128, 2) > Lambda().least_turn(1024, 2) > Lambda().least_turn(2048, 2) == 0
    assert OpenWhisk().least_turn(2048, 2) == OpenWhisk().least_turn(128, 2) > 0
