"""The end of a log that grows."""

from trimtab.serve.dashboard.pages.job_log import Tail
from trimtab.serve.service import LARGEST_PIECE, LogPiece


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
    assert not tail.read(run, "job")
    run.written, run.over = "zwölf".encode(), True
    assert tail.read(run, "job")
    assert tail.text == "zwölf"


def test_another_run_begins_anew() -> None:
    tail, run = Tail(), Run("1", b"the first, which was long")
    tail.read(run, "job")
    run.run, run.written = "2", b"the second"
    tail.read(run, "job")
    assert tail.text == "the second"


def test_of_a_long_log_only_the_end_is_kept() -> None:
    tail = Tail()
    assert tail.read(Run("1", b"x" * (3 * LARGEST_PIECE) + b"the end", over=True), "job")
    assert tail.text.endswith("xthe end")
    assert len(tail.text) == 64 << 10
