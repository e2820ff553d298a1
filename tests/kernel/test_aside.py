"""Written by somebody else's thread: in order, all of it, and what fails is said and ends nothing."""

import logging
import threading

import pytest

from trimtab.core import StorageError
from trimtab.kernel import WrittenAside


def test_nobody_waits_and_all_is_written_in_order_when_it_ends() -> None:
    written, may_write = list[int](), threading.Event()

    def slowly(number: int) -> None:
        assert may_write.wait(10)
        written.append(number)

    with WrittenAside(slowly, "a number is lost") as aside:
        for number in range(100):
            aside.put(number)
        assert written == []
        may_write.set()
    assert written == list(range(100))


def test_what_cannot_be_written_is_said_once_for_each_reason_and_the_rest_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = list[int]()

    def refuse_some(number: int) -> None:
        if number % 3 == 0:
            raise OSError("the disk is full")
        if number % 3 == 1:
            raise StorageError("the store is locked")
        written.append(number)

    with caplog.at_level(logging.WARNING), WrittenAside(refuse_some, "a number is lost") as aside:
        for number in range(9):
            aside.put(number)
    assert written == [2, 5, 8]
    assert [each.message for each in caplog.records] == [
        "a number is lost: the disk is full",
        "a number is lost: the store is locked",
    ]
