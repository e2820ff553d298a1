"""The process of a host: keeps its daemons alive, its traffic on paths that work, its tunnels' tables right.

When it ends or dies, the network stays as it is: FRR goes on by itself, only slower. A later agent finds the
daemons running and the routes as they are, and takes over.
"""

import contextlib
import gc
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from trimtab.core import Clock, NotFoundError, RealClock, TrimtabError
from trimtab.fabric.failover import Failover, FailoverRecord, PathKeeper, wanted_hops
from trimtab.fabric.journal import RUN
from trimtab.fabric.revival import Revival, Running
from trimtab.fabric.status import STATUS, Status, read_status, write_status
from trimtab.fabric.topology import Host
from trimtab.kernel import held_alone, is_held

FAILOVERS, _LOCK = "failovers.jsonl", "agent.lock"
_SWITCH = 0.0005  # s for which one thread may keep another waiting; Python's own is ten times as long

log = logging.getLogger(__name__)


class Worker(Protocol):
    """What runs beside, in a thread of its own, until it is stopped."""

    problem: str | None

    def run(self) -> None: ...
    def stop(self) -> None: ...


class Agent:
    """Of one host, whose plan is applied and whose daemons are started. `tell` hears of each failover."""

    def __init__(
        self,
        host: Host,
        daemons: Running,
        namespace: str | None = None,
        workers: Sequence[Worker] = (),
        tell: Callable[[Failover], None] = lambda failover: None,
        folder: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._host, self._daemons, self._namespace = host, daemons, namespace
        self._workers = workers
        self._folder = folder or RUN / host.name
        self._clock = clock or RealClock()
        self._record = FailoverRecord(self._folder / FAILOVERS, tell)
        self._keeper: PathKeeper | None = None
        self._ended = threading.Event()
        self._revival = Revival(daemons, self._clock)
        self._wake, self._woken = socket.socketpair()
        self._repairs = 0
        self._problems: dict[str, str] = {}

    def run(self) -> None:
        """Work until `stop`, and leave everything as it is."""
        refusal = f"an agent already runs for {self._host.name}"
        with held_alone(self._folder / _LOCK, refusal), self._record, _prompt(), self._threads() as threads:
            while not self._ended.is_set():
                began = self._clock.monotonic()
                self._check(threads)
                self._step()
                spent = self._clock.monotonic() - began
                self._rest(max(self._host.timers.settle, 10 * spent) - spent)
            with self._noting("status"):  # from which a later agent goes on
                write_status(self.status(), self._folder)

    def stop(self) -> None:
        """End `run` soon."""
        self._ended.set()
        with contextlib.suppress(OSError):  # it has ended
            self._wake.send(b"\0")

    @property
    def at_work(self) -> bool:
        """Whether it keeps paths by now."""
        return self._keeper is not None

    def status(self) -> Status:
        """As things are."""
        assert self._keeper is not None, "an agent that does not run has no status"
        paths = self._keeper.look()
        problems = [*self._problems.values(), *(each.problem for each in self._workers if each.problem)]
        if not paths.bfd:
            problems.append(
                "bfdd cannot be heard: what probes do not show is noticed only by BGP, in seconds"
            )
        return Status(
            self._host.name,
            self._clock.now(),
            paths.uplinks,
            paths.devices,
            paths.gone,
            self._record.latest,
            tuple(problems),
            self._repairs,
            paths.late,
            self._record.count,
            self._record.seconds,
        )

    def _check(self, threads: Sequence[threading.Thread]) -> None:
        """Without the keeper of paths an agent is of no use; without a reconciler it is."""
        keeper, *workers = threads
        if not keeper.is_alive():
            raise TrimtabError("the keeper of paths has failed; the network stays as it is")
        with self._noting("workers"):
            if not all(thread.is_alive() for thread in workers):
                raise TrimtabError(
                    "a reconciler has failed, so a tenant's table may grow old; start the agent anew"
                )

    def _step(self) -> None:
        """What is done every settle period."""
        assert self._keeper is not None
        with self._noting("daemons"):
            self._revival.revive()
        with self._noting("routes"):
            mark = self._keeper.mark()
            self._repairs += self._keeper.believe(wanted_hops(self._daemons.folder), mark)
        with self._noting("status"):
            write_status(self.status(), self._folder)

    def _rest(self, seconds: float) -> None:
        """Until the next step; a daemon that dies meanwhile is started again at once."""
        end = self._clock.monotonic() + seconds
        while not self._ended.is_set() and (left := end - self._clock.monotonic()) > 0.0:
            if self._revival.wait(left, self._woken.fileno()):
                with self._noting("daemons"):
                    self._revival.revive()

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """A problem is said in the status, and in the log when it is new."""
        try:
            yield
            self._problems.pop(what, None)
        except TrimtabError as error:
            if self._problems.get(what) != str(error):
                log.warning("%s", error)
            self._problems[what] = str(error)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[list[threading.Thread]]:
        """The keeper and the workers, each in a thread."""
        bfd = self._daemons.folder / "bfdd.sock"
        before = self._before()
        self._keeper = PathKeeper(
            self._host,
            bfd,
            self._namespace,
            self._record,
            before.gone if before else None,
            self._clock,
            before=before.uplinks if before else (),
        )
        parts: list[PathKeeper | Worker] = [self._keeper, *self._workers]
        threads = [threading.Thread(target=part.run, daemon=True) for part in parts]
        try:
            for thread in threads:
                thread.start()
            self._keeper.ready.wait(self._host.timers.settle)
            yield threads
        finally:
            for part in parts:
                part.stop()
            for thread in threads:
                thread.join()
            self._wake.close()
            self._woken.close()

    def _before(self) -> Status | None:
        """How an earlier agent left things: destinations that were gone, uplinks that had failed."""
        try:
            return read_status(self._host.name, self._folder)
        except NotFoundError:
            return None


@contextlib.contextmanager
def _prompt() -> Iterator[None]:
    """Let no thread of this process, nor its collection of garbage, keep the keeper of paths waiting."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def agent_runs(name: str, folder: Path | None = None) -> bool:
    """Whether an agent runs for that host."""
    return is_held((folder or RUN / name) / _LOCK)


def forget_agent(name: str, folder: Path | None = None) -> None:
    """Remove what agents of that host have written; not while one runs."""
    place = folder or RUN / name
    if agent_runs(name, folder):
        raise TrimtabError(f"an agent runs for {name}; end it first, with Ctrl-C or SIGTERM")
    for file in (STATUS, FAILOVERS, Path(FAILOVERS).with_suffix(".old").name, _LOCK):
        (place / file).unlink(missing_ok=True)
