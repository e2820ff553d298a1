"""The scheduler as a supervised child process, so that its computing delays no answer of the API.

It writes one JSON object a line: `{"ready": true}` when it has started, `{"leads": …}` when that changes,
`{"round": …}` with the seconds of each round, and `{"error": …}` if it cannot start.
"""

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trimtab.core import TrimtabError, from_plain, to_plain
from trimtab.serve.processes.supervision import SupervisedProcess, log_to_stderr, supervised_child
from trimtab.serve.settings import Settings, parse_prices

if TYPE_CHECKING:
    from trimtab.schedule import Scheduler
    from trimtab.store import Store

log = logging.getLogger("trimtab.serve")

_START_TIMEOUT = 60.0  # s


class SchedulerProcess:
    """State of the supervised scheduler process."""

    def __init__(self, settings: Settings) -> None:
        self._leads = False
        self._round = 0.0
        self._error = ""
        self._answered = threading.Event()
        self._process = SupervisedProcess("scheduler", f"{__name__}:main", to_plain(settings), self._talk)

    def leads(self) -> bool:
        return self._leads

    def round_seconds(self) -> float:
        """Seconds of the last round; 0 before the first."""
        return self._round

    def wait(self) -> None:
        """Wait until it has started; raises if it cannot."""
        if not self._answered.wait(_START_TIMEOUT):
            raise TrimtabError(f"the scheduler did not start within {_START_TIMEOUT:.0f} s")
        if self._error:
            raise TrimtabError(self._error)

    def stop(self) -> None:
        self._process.stop()

    def _talk(self, parent_end: socket.socket) -> bool:
        with parent_end.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                if not line.endswith(b"\n"):  # it was killed while it wrote
                    break
                message: dict[str, Any] = json.loads(line)
                self._leads = message.get("leads", self._leads)
                self._round = message.get("round", self._round)
                if not self._answered.is_set():
                    self._error = message.get("error", self._error)
                    self._answered.set()
                elif "error" in message:
                    log.error("%s", message["error"])
        self._leads = False
        if not self._answered.is_set():
            self._error = self._error or "the scheduler ended before it had started; the log may say why"
            self._answered.set()
        return not self._error


@contextmanager
def scheduler_process(settings: Settings) -> Iterator[SchedulerProcess]:
    """A scheduler process while the block runs; its `wait` raises if it fails to start."""
    process = SchedulerProcess(settings)
    try:
        yield process
    finally:
        process.stop()


def main() -> None:
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: end.set())
    child_end, config = supervised_child()
    settings = from_plain(Settings, config)

    def tell(**message: Any) -> None:
        with suppress(OSError):  # the parent has ended, and so will this process
            child_end.sendall(json.dumps(message).encode() + b"\n")

    def wait_for_end() -> None:
        child_end.recv(1)
        end.set()

    threading.Thread(target=wait_for_end, name="end", daemon=True).start()
    with log_to_stderr(settings):
        try:
            from trimtab.schedule import only_scheduler
            from trimtab.store import open_store

            make = scheduler_factory(settings, lambda seconds, starts: tell(round=seconds))
            with open_store(settings.store or None) as store, only_scheduler(store) as post:
                tell(ready=True)
                post.hold(make, end, lambda leads: tell(leads=leads))
        except TrimtabError as error:
            tell(error=str(error))
            sys.exit(2)


def scheduler_factory(
    settings: Settings, on_round: Callable[[float, int], object] = lambda seconds, starts: None
) -> "Callable[[Store], Scheduler]":
    """Function that makes the settings' scheduler over a store; wrong names are refused at once.

    `on_round` is called after each round with its seconds, and the jobs started since the last.
    """
    from trimtab.engines import engine
    from trimtab.schedule import LoopSettings, Scheduler, policy

    cost = parse_prices(settings.prices)
    url, name = settings.engine, settings.policy
    look = 0.5 if url.startswith("local:") else 2.0  # other engines are asked over a network
    loop = LoopSettings(round=settings.round, look=min(look, settings.round))
    policy(name)
    where = engine(url)
    passable = {name: os.environ[name] for name in settings.pass_variables if name in os.environ}
    return lambda store: Scheduler(
        store,
        where,
        policy(name),
        name,
        loop,
        prices=cost,
        address=url,
        on_round=on_round,
        passable=passable,
    )
