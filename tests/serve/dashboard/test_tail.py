"""The end of a log that grows."""

import pytest

from trimtab.core import NotFoundError
from trimtab.serve.dashboard.visit import KEPT, Tail, Tails
from trimtab.serve.operations import LARGEST_PIECE, LogPiece


class Run:
    """One run after the other, and what each has written."""

    def __init__(self, run: str, written: bytes, over: bool = False) -> None:
        self.run, self.written, self.over = run, written, over

    def log(self, id: str, offset: int = 0) -> LogPiece:
        data = self.written[offset : offset + LARGEST_PIECE]
        end = offset + len(data)
        return LogPiece(self.run, offset, data, end, self.over and end >= len(self.written))


def test_a_log_goes_on_where_it_was_also_within_a_letter() -> None:
    tail, run = Tail(), Run("1", "zwölf".encode()[:3])
    assert tail.read(run, "job") == ("zw", False)
    run.written, run.over = "zwölf".encode(), True
    assert tail.read(run, "job") == ("zwölf", True)


def test_another_run_begins_anew() -> None:
    tail, run = Tail(), Run("1", b"the first, which was long")
    tail.read(run, "job")
    run.run, run.written = "2", b"the second"
    assert tail.read(run, "job") == ("the second", False)


def test_of_a_long_log_only_the_end_is_kept() -> None:
    shown, over = Tail().read(Run("1", b"x" * (3 * LARGEST_PIECE) + b"the end", over=True), "job")
    assert shown.endswith("xthe end")
    assert len(shown) == KEPT
    assert over


def test_who_may_not_see_a_log_gets_nothing_of_what_another_has_read() -> None:
    class Nothing:
        def log(self, id: str, offset: int = 0) -> LogPiece:
            raise NotFoundError("there is no job")

    tails = Tails()
    assert tails.read(Run("1", b"secret"), "job") == ("secret", False)
    with pytest.raises(NotFoundError):
        tails.read(Nothing(), "job")
    assert tails.read(Run("2", b"own"), "job") == ("own", False)
