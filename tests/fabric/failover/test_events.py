"""Failovers in memory, on file, and reported."""

import logging
from pathlib import Path

import pytest

from trimtab.core import StorageError
from trimtab.fabric.failover.keeper import KEPT, Failover, FailoverRecord

ONE = Failover(1000.5, "p1", "172.16.1.3", "bfd", 0.0002, 1)
OTHER = Failover(1001.5, "p2", "172.16.2.3", "carrier", 0.0003, 1)


def test_each_is_kept_appended_and_told_and_a_later_record_knows_it(tmp_path: Path) -> None:
    path, reported = tmp_path / "fabric" / "failovers.jsonl", list[Failover]()
    with FailoverRecord(path, reported.append) as record:
        record(ONE)
    with FailoverRecord(path, reported.append) as record:
        assert record.latest == (ONE,)
        record(OTHER)
    assert reported == [ONE, OTHER]
    assert FailoverRecord(path).latest == (ONE, OTHER)


def test_all_are_counted_however_many_are_kept(tmp_path: Path) -> None:
    with FailoverRecord(tmp_path / "failovers.jsonl") as record:
        for _ in range(KEPT + 5):
            record(ONE)
    assert (record.count, len(record.latest)) == (KEPT + 5, KEPT)
    assert record.seconds == pytest.approx((KEPT + 5) * ONE.seconds)


def test_lines_that_are_no_failovers_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "failovers.jsonl"
    with FailoverRecord(path) as record:
        record(ONE)
    path.write_text('{"time": 1}\n[]\nnonsense\n' + path.read_text() + '{"time": 10')
    assert FailoverRecord(path).latest == (ONE,)
    assert FailoverRecord(tmp_path / "none").latest == ()


def test_a_ledger_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(failover: Failover) -> None:
        raise StorageError("the disk is full")

    with caplog.at_level(logging.WARNING), FailoverRecord(tmp_path / "failovers.jsonl", refuse) as record:
        record(ONE)
        record(OTHER)
    assert [each.message for each in caplog.records] == ["a failover is not written down: the disk is full"]
    assert record.latest == (ONE, OTHER)
