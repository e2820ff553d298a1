"""What a job's run has written, as it writes it."""

import codecs
from typing import Protocol

from nicegui import ui

from trimtab.core import TrimtabError
from trimtab.serve.dashboard.live import EVERY
from trimtab.serve.dashboard.parts import notice, text
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.problems import problem_of
from trimtab.serve.service import LARGEST_PIECE, LogPiece

_KEPT = 64 << 10
"""Characters that stay on the page; the beginning of a longer log goes."""
_PIECES = 256  # that are read at once, before others have their turn
_NOTHING = "It has written nothing yet."


async def show_log(visit: Visit, id: str) -> None:
    """The log's end, followed until the job is over."""
    said = notice()
    shown = text("pre", "", "log", {"tabindex": "0", "aria-label": "Log", "role": "region"})
    tail = Tail()

    async def look() -> bool:
        """Take what is new; whether no more comes."""
        try:
            over = await visit.do(lambda service: tail.read(service.jobs, id))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return False
        shown.set_text(tail.text)
        said.set_text("" if tail.text else _NOTHING)
        return over

    async def again() -> None:
        if await look():
            timer.cancel()

    if not await look():
        timer = ui.timer(EVERY, again, immediate=False)


class Logs(Protocol):
    """Who has logs, by jobs' ids."""

    def log(self, id: str, offset: int = 0) -> LogPiece: ...


class Tail:
    """The end of a log that grows; when another run begins, its log does from the start."""

    def __init__(self) -> None:
        self.text, self._run, self._place = "", "", 0
        self._decoder = _decoder()

    def read(self, logs: Logs, id: str) -> bool:
        """Go on to where the log ends now, or as far as is right at once; whether no more comes."""
        for _ in range(_PIECES):
            piece = logs.log(id, self._place)
            if piece.run != self._run:
                asked, self.text, self._run, self._place = self._place, "", piece.run, 0
                self._decoder = _decoder()
                if asked:
                    continue
            self._place = piece.next
            self.text = (self.text + self._decoder.decode(piece.data))[-_KEPT:]
            if piece.over or len(piece.data) < LARGEST_PIECE:
                return piece.over
        return False


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
