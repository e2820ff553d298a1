"""The ends of logs that grow: each is read once, however many look at it."""

import codecs
import threading
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.serve.operations import LARGEST_PIECE, LogPiece

KEPT = 64 << 10
"""Characters of a log that are shown; the beginning of a longer one goes."""

_PIECES = 256  # that are read at once, before others have their turn
_MOST = 200


class Logs(Protocol):
    """Who has logs, by jobs' ids."""

    def log(self, id: str, offset: int = 0) -> LogPiece: ...


class Tail:
    """The end of a log that grows; when another run begins, its log does from the start."""

    def __init__(self) -> None:
        self.text, self._run, self._place = "", "", 0
        self._decoder = _decoder()
        self._lock = threading.Lock()

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """Go on to where the log ends now, or as far as is right at once; its end, and whether it is over."""
        with self._lock:
            for _ in range(_PIECES):
                piece = logs.log(id, self._place)
                if piece.run != self._run:
                    asked, self.text, self._run, self._place = self._place, "", piece.run, 0
                    self._decoder = _decoder()
                    if asked:
                        continue
                self._place = piece.next
                self.text = (self.text + self._decoder.decode(piece.data))[-KEPT:]
                if piece.over or len(piece.data) < LARGEST_PIECE:
                    return self.text, piece.over
            return self.text, False


@dataclass(slots=True)
class Tails:
    """Of the jobs that were looked at last. Who may not see a log is told so by who has it, every time."""

    _kept: dict[str, Tail] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """The end of a job's log now, and whether no more comes."""
        with self._lock:
            tail = self._kept[id] = self._kept.pop(id) if id in self._kept else Tail()
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
        return tail.read(logs, id)


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
