"""The scheduler in a process of its own: what it computes holds up no answer of the API's.

It says one JSON object a line: `{"ready": true}` at its post, `{"leads": …}` when that changes, and
`{"error": …}` instead of starting.
"""

import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trimtab.core import TrimtabError, from_plain, to_plain
from trimtab.serve.companion import Companion, begun
from trimtab.serve.log_lines import shown_log
from trimtab.serve.settings import Settings

log = logging.getLogger("trimtab.serve")

_READY = 60.0  # s in which it has to be at its post


class Beside:
    """What is known of it."""

    def __init__(self, settings: Settings) -> None:
        self._leads = False
        self._error = ""
        self._heard = threading.Event()
        self._process = Companion("scheduler", f"{__name__}:schedule", to_plain(settings), self._meet)

    def leads(self) -> bool:
        """Whether it is the one that schedules now."""
        return self._leads

    def wait(self) -> None:
        """Until it is at its post; raises where it cannot be."""
        if not self._heard.wait(_READY):
            raise TrimtabError(f"the scheduler did not start within {_READY:.0f} s")
        if self._error:
            raise TrimtabError(self._error)

    def stop(self) -> None:
        """Let it end in order."""
        self._process.stop()

    def _meet(self, ours: socket.socket) -> bool:
        with ours.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                self._hear(json.loads(line))
        self._leads = False
        if not self._heard.is_set():
            self._error = self._error or "the scheduler ended before it began; the log may say why"
            self._heard.set()
        return not self._error

    def _hear(self, said: dict[str, Any]) -> None:
        self._leads = said.get("leads", self._leads)
        if not self._heard.is_set():
            self._error = said.get("error", self._error)
            self._heard.set()
        elif "error" in said:
            log.error("%s", said["error"])


@contextmanager
def scheduling_beside(settings: Settings) -> Iterator[Beside]:
    """A scheduler at work while the block runs. A failure to start is told by its `wait`."""
    beside = Beside(settings)
    try:
        yield beside
    finally:
        beside.stop()


def schedule() -> None:
    """The process itself."""
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: end.set())
    theirs, told = begun()
    settings = from_plain(Settings, told)

    def say(**what: Any) -> None:
        with suppress(OSError):  # who would hear it has ended, and so will this
            theirs.sendall(json.dumps(what).encode() + b"\n")

    def listen() -> None:
        theirs.recv(1)
        end.set()

    threading.Thread(target=listen, name="end", daemon=True).start()
    with shown_log(settings):
        try:
            from trimtab.schedule import only_scheduler
            from trimtab.serve.run import scheduler_of
            from trimtab.store import open_store

            make = scheduler_of(settings)
            with open_store(settings.store or None) as store, only_scheduler(store) as post:
                say(ready=True)
                post.hold(make, end, lambda leads: say(leads=leads))
        except TrimtabError as error:
            say(error=str(error))
            sys.exit(2)
