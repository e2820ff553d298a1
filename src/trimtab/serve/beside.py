"""The scheduler in a process of its own: what it computes holds up no answer of the API's.

It is told its settings in one line and ends when nothing more can come. It says one JSON object a line:
`{"ready": true}` at its post, `{"leads": …}` when that changes, `{"error": …}` instead of starting.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trimtab.core import TrimtabError, from_plain, to_plain
from trimtab.kernel import die_with_parent
from trimtab.serve.log_lines import shown_log
from trimtab.serve.settings import Settings

log = logging.getLogger("trimtab.serve")

_COMMAND = (sys.executable, "-c", "from trimtab.serve import schedule_beside; schedule_beside()")
_READY = 60.0  # s in which it has to be at its post
_END = 20.0  # s in which it has to end when it is told to
_PAUSE = 1.0  # s before it is started again


class Beside:
    """The process, watched: when it ends by itself, it is started again."""

    def __init__(self, settings: Settings) -> None:
        self._told = json.dumps(to_plain(settings)) + "\n"
        self._leads = False
        self._error = ""
        self._heard = threading.Event()
        self._end = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        # It lives as long as the process that it starts, which the kernel ends with the thread.
        self._thread = threading.Thread(target=self._watch, name="scheduler")
        self._thread.start()

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
        self._end.set()
        process = self._process
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.is_set():
            status = self._run()
            self._leads = False
            if not self._heard.is_set():
                self._error = self._error or f"the scheduler ended with status {status} before it began"
                self._heard.set()
                return
            if not self._end.is_set():
                why = f": {self._error}" if self._error else ""
                log.error("the scheduler ended with status %s%s; it is started again", status, why)
                self._end.wait(_PAUSE)

    def _run(self) -> int:
        """One life of it; its status."""
        process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._error = ""
        with suppress(OSError):
            process.stdin.write(self._told)
            if self._end.is_set():  # told so while it was made, when there was nothing to close
                process.stdin.close()
        for line in process.stdout:
            self._hear(json.loads(line))
        status = process.wait()
        process.stdout.close()
        with suppress(OSError):
            process.stdin.close()
        return status

    def _hear(self, said: dict[str, Any]) -> None:
        self._error = said.get("error", self._error)
        self._leads = said.get("leads", self._leads)
        if "ready" in said:
            self._heard.set()


@contextmanager
def scheduling_beside(settings: Settings) -> Iterator[Beside]:
    """A scheduler at work while the block runs. A failure to start is told by its `wait`."""
    beside = Beside(settings)
    try:
        yield beside
    finally:
        beside.stop()


def schedule_beside() -> None:
    """The process itself."""
    parent = os.getppid()
    die_with_parent(signal.SIGKILL)
    end = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    signal.signal(signal.SIGTERM, lambda number, frame: end.set())
    told = sys.stdin.readline()
    if not told or os.getppid() != parent:
        return
    settings = from_plain(Settings, json.loads(told))
    threading.Thread(target=_listen, args=(end,), name="end", daemon=True).start()
    with shown_log(settings):
        try:
            _schedule(settings, end)
        except TrimtabError as error:
            _say(error=str(error))
            sys.exit(2)


def _listen(end: threading.Event) -> None:
    sys.stdin.read()
    end.set()


def _schedule(settings: Settings, end: threading.Event) -> None:
    from trimtab.schedule import only_scheduler
    from trimtab.serve.run import scheduler_of
    from trimtab.store import open_store

    make = scheduler_of(settings)
    with open_store(settings.store or None) as store, only_scheduler(store) as post:
        _say(ready=True)
        post.hold(make, end, lambda leads: _say(leads=leads))


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)
