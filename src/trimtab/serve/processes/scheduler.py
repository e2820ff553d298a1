"""The scheduler as a supervised child process: what it computes delays no answer of the API.

It writes one JSON object a line: `{"ready": true}` when it has started, `{"leads": …}` when that changes, and
`{"error": …}` instead of starting.
"""

import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trimtab.core import TrimtabError, from_plain, to_plain
from trimtab.serve.processes.supervision import SupervisedProcess, log_to_stderr, supervised_child
from trimtab.serve.settings import Settings

if TYPE_CHECKING:
    from trimtab.schedule import Scheduler
    from trimtab.store import Store

log = logging.getLogger("trimtab.serve")

_START_TIMEOUT = 60.0  # s


class SchedulerProcess:
    """State of the supervised scheduler process."""

    def __init__(self, settings: Settings) -> None:
        self._leads = False
        self._error = ""
        self._heard = threading.Event()
        self._process = SupervisedProcess("scheduler", f"{__name__}:main", to_plain(settings), self._talk)

    def leads(self) -> bool:
        """Whether this scheduler is the leader now."""
        return self._leads

    def wait(self) -> None:
        """Wait until it has started; raises where it cannot."""
        if not self._heard.wait(_START_TIMEOUT):
            raise TrimtabError(f"the scheduler did not start within {_START_TIMEOUT:.0f} s")
        if self._error:
            raise TrimtabError(self._error)

    def stop(self) -> None:
        """End it in order."""
        self._process.stop()

    def _talk(self, ours: socket.socket) -> bool:
        with ours.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                self._receive(json.loads(line))
        self._leads = False
        if not self._heard.is_set():
            self._error = self._error or "the scheduler ended before it began; the log may say why"
            self._heard.set()
        return not self._error

    def _receive(self, message: dict[str, Any]) -> None:
        self._leads = message.get("leads", self._leads)
        if not self._heard.is_set():
            self._error = message.get("error", self._error)
            self._heard.set()
        elif "error" in message:
            log.error("%s", message["error"])


@contextmanager
def scheduler_process(settings: Settings) -> Iterator[SchedulerProcess]:
    """A scheduler process while the block runs. Its `wait` raises where it fails to start."""
    process = SchedulerProcess(settings)
    try:
        yield process
    finally:
        process.stop()


def main() -> None:
    """The child process."""
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: end.set())
    theirs, config = supervised_child()
    settings = from_plain(Settings, config)

    def tell(**message: Any) -> None:
        with suppress(OSError):  # the parent has ended, and so will this process
            theirs.sendall(json.dumps(message).encode() + b"\n")

    def wait_for_end() -> None:
        theirs.recv(1)
        end.set()

    threading.Thread(target=wait_for_end, name="end", daemon=True).start()
    with log_to_stderr(settings):
        try:
            from trimtab.schedule import only_scheduler
            from trimtab.store import open_store

            make = scheduler_factory(settings)
            with open_store(settings.store or None) as store, only_scheduler(store) as post:
                tell(ready=True)
                post.hold(make, end, lambda leads: tell(leads=leads))
        except TrimtabError as error:
            tell(error=str(error))
            sys.exit(2)


def scheduler_factory(settings: Settings) -> "Callable[[Store], Scheduler]":
    """Function that makes the scheduler of the settings over a store; wrong names are refused at once."""
    from trimtab.engines import engine
    from trimtab.schedule import LoopSettings, Scheduler, policy

    cost = parse_prices(settings.prices)
    url, name = settings.engine, settings.policy
    look = 0.5 if url.startswith("local:") else 2.0  # other engines are asked over a network
    loop = LoopSettings(round=settings.round, look=min(look, settings.round))
    policy(name)
    where = engine(url)
    return lambda store: Scheduler(store, where, policy(name), name, loop, prices=cost, address=url)


def parse_prices(prices: Sequence[str]) -> dict[str, float]:
    """Dollars per second by kind of accelerator, from texts like a100=$3.20/h."""
    from trimtab.core import BadInputError, parse_price
    from trimtab.schedule import kind_of

    cost = {}
    for each in prices:
        kind, equals, price = each.partition("=")
        if not equals:
            raise BadInputError(f'"{each}" is not a price of a kind; write it like a100=$3.20/h')
        cost[kind_of(kind)] = parse_price(price)
    return cost
