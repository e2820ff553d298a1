"""Which uplinks can be used: who says that one is down, and how long it must behave before it is used again.

An uplink is dead while anyone says so (the BFD session, the carrier, probes that do not come back). When
nobody does any more it is held for `hold` seconds. They double with each failure that follows, up to `MOST`
times as long; one failure is forgotten with each `window` seconds in which it was not dead.
"""

import contextlib
import json
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from trimtab.core import Clock, RealClock
from trimtab.fabric.failover.echo import EchoWatch
from trimtab.fabric.failover.kernel_routes import (
    BGP,
    EventsLostError,
    KernelRoutes,
    LinkChange,
    Removed,
    Written,
)
from trimtab.fabric.failover.messages import BfdSocket, Notices, Session
from trimtab.fabric.failover.routes import Cause, Hops, State, Traffic, Uplinks, Witness
from trimtab.fabric.machine import made_in
from trimtab.fabric.topology import Host
from trimtab.kernel import BackgroundWriter

KEPT = 100  # in memory
_MOST = 1 << 20  # bytes of the file, then it begins anew


@dataclass(frozen=True, slots=True)
class Failover:
    """An uplink failed at `time` (seconds since the epoch).

    `seconds` passed from hearing of it to the kernel's new routes; `paths` uplinks were not dead.
    """

    time: float
    uplink: str
    peer: str
    cause: Cause
    seconds: float
    paths: int


class FailoverRecord:
    """The latest failovers; each is appended to a file and given to `tell`, by a thread of its own."""

    def __init__(self, path: Path, tell: Callable[[Failover], None] = lambda failover: None) -> None:
        self._path, self._tell = path, tell
        self._latest = deque(read_failovers(path), maxlen=KEPT)
        self.count, self.seconds = 0, 0.0  # since this one began, and what they cost
        self._aside = BackgroundWriter(self._write, "a failover is not written down")

    def __call__(self, failover: Failover) -> None:
        """Remember it; nobody waits for a disk."""
        self.count, self.seconds = self.count + 1, self.seconds + failover.seconds
        self._latest.append(failover)
        self._aside.put(failover)

    @property
    def latest(self) -> tuple[Failover, ...]:
        """Oldest first."""
        return tuple(self._latest)

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._aside.__exit__(*raised)

    def _write(self, failover: Failover) -> None:
        self._append(failover)
        self._tell(failover)

    def _append(self, failover: Failover) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MOST:
            self._path.replace(self._path.with_suffix(".old"))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failover)) + "\n")


def read_failovers(path: Path) -> list[Failover]:
    """The latest in a file, oldest first; what is no failover there is left out."""
    return list(_read(path))[-KEPT:]


def _read(path: Path) -> Iterator[Failover]:
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                yield Failover(**json.loads(line))


_TOLD_FOR = 3  # settle periods for which a notice is good
_RECONNECT = 0.05  # s
_AGAIN = 0.02  # s after which a failover is looked at, and told to others, once more
_NICENESS = (
    -15
)  # on a busy machine it runs before others; short of real-time priority, which can stop a machine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UplinkNow:
    """An uplink: since when it is as it is, and until when it is held (a wall clock's seconds; None: not)."""

    device: str
    peer: str
    state: State
    since: float | None
    held_until: float | None
    failures: int
    echo: bool | None = None  # whether probes come back at the moment; None: never since it is up


@dataclass(frozen=True, slots=True)
class Paths:
    """What a keeper knows: uplinks, devices that lead to each destination, destinations that are gone."""

    uplinks: tuple[UplinkNow, ...]
    devices: dict[str, tuple[str, ...]]
    gone: dict[str, float]  # since
    bfd: bool  # whether bfdd can be heard
    late: int  # ticks that came late: this machine had something else to do


class PathKeeper:
    """One per host. `run` in a thread; everything else may be called from others."""

    def __init__(
        self,
        host: Host,
        bfd: Path,
        namespace: str | None = None,
        notice: Callable[[Failover], None] = lambda failover: None,
        gone: Mapping[str, float] | None = None,
        clock: Clock | None = None,
        protocol: int = BGP,
        before: Iterable[UplinkNow] = (),
    ) -> None:
        self._host = host
        self._peers = {uplink.device: str(uplink.peer) for uplink in host.uplinks}
        self._by_peer = {peer: device for device, peer in self._peers.items()}
        self._notice = notice
        self._clock = clock or RealClock()
        self._lock = threading.Lock()
        self._traffic = Traffic(self._resumed(before), gone)
        self._bfd = BfdSocket(bfd)
        self._heard_up = set[str]()  # sessions that bfdd, since we hear it, has said to be up
        self._ended = False
        self._told = False  # whether others know of a loss
        self._due = 0.0  # when all is compared and told
        self._look_at = 0.0  # when something may change, or is due, although nothing is heard
        self.ready = threading.Event()  # set once the kernel's routes are known
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._kernel, self._notices, self._echo = made_in(namespace, lambda: self._sockets(protocol))

    def _resumed(self, before: Iterable[UplinkNow]) -> Uplinks:
        """As an earlier keeper left them. One that was dead is held: nobody saw how long it has been well."""
        uplinks = Uplinks(self._peers, self._host.timers.hold)
        now, wall = self._clock.monotonic(), self._clock.now()
        for each in before:
            if each.state == "dead":
                uplinks.resume(each.device, each.failures, now, now + uplinks.hold_of(each.failures))
            elif each.since is not None:
                since = now - max(0.0, wall - each.since)
                uplinks.resume(each.device, each.failures, since, now + (each.held_until or 0.0) - wall)
        return uplinks

    def _sockets(self, protocol: int) -> tuple[KernelRoutes, Notices, EchoWatch | None]:
        timing = self._host.timers.echo
        with contextlib.ExitStack() as stack:
            kernel = KernelRoutes(tuple(self._peers), protocol)
            stack.callback(kernel.close)
            notices = Notices(self._host.loopback)
            stack.callback(notices.close)
            echo = EchoWatch(self._host.uplinks, timing, self._clock.monotonic()) if timing else None
            stack.pop_all()
            return kernel, notices, echo

    def run(self) -> None:
        """Work until `stop`; then leave everything as it is."""
        with contextlib.suppress(OSError):  # of this thread alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        handlers: dict[socket.socket | Notices, Callable[[float], None]] = {
            self._kernel.events: self._on_kernel,
            self._kernel.asking: self._on_answer,
            self._kernel.writing: self._on_refusal,
            self._notices: self._on_notice,
            self._woken: lambda now: None,
        }
        for source, handler in handlers.items():
            self._selector.register(source, selectors.EVENT_READ, handler)
        try:
            while not self._ended:
                with self._lock:
                    wait = self._step(self._clock.monotonic())
                for key, _ in self._selector.select(wait):
                    with self._lock:
                        key.data(self._clock.monotonic())
                        self._look_at = 0.0
        finally:
            self._close()

    def stop(self) -> None:
        """End `run`."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._wake.send(b".")

    def mark(self) -> int:
        """To be taken before the routing daemon is asked, and given to `believe` with its answer."""
        with self._lock:
            return self._traffic.mark()

    def believe(self, wanted: Mapping[str, Hops], mark: int) -> int:
        """What the routing daemon says it has in the kernel, by prefix; how many routes were not so."""
        with self._lock:
            corrected = self._traffic.believed(wanted, mark)
            self._write(self._clock.monotonic())
            return corrected

    def look(self) -> Paths:
        """As things are."""
        with self._lock:
            now, wall = self._clock.monotonic(), self._clock.now()
            uplinks = self._traffic.uplinks
            rows = []
            for device, peer in self._peers.items():
                since, held = uplinks.since(device), uplinks.held_until(device, now)
                rows.append(
                    UplinkNow(
                        device,
                        peer,
                        uplinks.state(device, now),
                        None if since is None else wall - now + since,
                        None if held is None else wall - now + held,
                        uplinks.failures(device, now),
                        self._echo.comes_back(device) if self._echo else None,
                    )
                )
            devices = {
                prefix: tuple(hop.device for hop in hops) for prefix, hops in self._traffic.hops().items()
            }
            late = self._echo.late if self._echo else 0
            return Paths(tuple(rows), devices, dict(self._traffic.gone), self._bfd.connected, late)

    def _step(self, now: float) -> float:
        """What is due although nothing was heard; seconds until the next of it.

        Probes leave hundreds of times a second, so the routes are not looked at for each.
        """
        if self._echo and now >= self._echo.next_tick:
            self._on_tick(self._echo, now)
        if now >= self._look_at:
            self._settle(now)
            self._look_at = self._next_look(now)
        until = min(self._look_at, self._echo.next_tick) if self._echo else self._look_at
        return max(0.0, until - self._clock.monotonic())

    def _on_tick(self, echo: EchoWatch, now: float) -> None:
        for device, looped in echo.tick(now):
            if looped == "lost":
                self._down(device, "echo", now, failed=True)
            else:
                self._traffic.uplinks.up(device, "echo", now)
            self._look_at = 0.0

    def _settle(self, now: float) -> None:
        """What is due although nothing was heard."""
        if not self._bfd.connected and self._bfd.connect():
            self._selector.register(self._bfd, selectors.EVENT_READ, self._on_bfd)
        if now >= self._due:
            self._due = now + self._host.timers.settle
            self._kernel.ask(self._traffic.mark())
            self._tell(now)
        self._write(now)

    def _next_look(self, now: float) -> float:
        times = [self._due, self._traffic.next_change(now)]
        if not self._bfd.connected:
            times.append(now + _RECONNECT)
        return min(time for time in times if time is not None)

    def _on_bfd(self, now: float) -> None:
        handle = self._bfd.fileno()
        for session in self._bfd.sessions():
            self._on_session(session, now)
        if not self._bfd.connected:  # the network stays as it is; the next bfdd tells where it stands
            self._selector.unregister(handle)
            self._heard_up.clear()

    def _on_session(self, session: Session, now: float) -> None:
        device = self._by_peer.get(session.peer)
        if device is None:
            return
        if session.state == "up":
            self._heard_up.add(device)
        if session.state in ("up", "shutdown"):
            self._traffic.uplinks.up(device, "bfd", now)
        else:
            self._down(device, "bfd", now, device in self._heard_up)
            self._forget_echoes(device, now)

    def _on_kernel(self, now: float) -> None:
        try:
            for change in self._kernel.changes():
                if isinstance(change, LinkChange):
                    self._on_link(change, now)
                elif isinstance(change, Written):
                    self._traffic.written(change.route, change.hops)
                elif isinstance(change, Removed):
                    self._traffic.removed(change.key, self._clock.now())
        except EventsLostError:
            self._kernel.ask(self._traffic.mark())
        self._write(now)

    def _on_link(self, change: LinkChange, now: float, failed: bool = True) -> None:
        if change.carrier:
            self._traffic.uplinks.up(change.device, "carrier", now)
            if self._echo:
                self._echo.plug(change.device)
        else:
            self._down(change.device, "carrier", now, failed)
            self._forget_echoes(change.device, now)

    def _forget_echoes(self, device: str, now: float) -> None:
        """It is dead for another reason; whoever is there when it is back may send no probes back."""
        if self._echo:
            self._echo.forget(device)
            self._traffic.uplinks.up(device, "echo", now)

    def _on_answer(self, now: float) -> None:
        dump = self._kernel.answered()
        if dump is None:
            return
        for device in self._peers:
            self._on_link(LinkChange(device, dump.links.get(device, False)), now, self.ready.is_set())
        self._traffic.dumped(dump.routes, dump.mark, self._clock.now())
        self._write(now)
        self.ready.set()

    def _on_refusal(self, now: float) -> None:
        refused = self._kernel.refused()
        if refused:  # what the kernel has is read again when it is due
            log.warning("the kernel refused %d routes", refused)

    def _on_notice(self, now: float) -> None:
        told = list[str]()
        for notice in self._notices.heard():
            lost = {uplink.device for uplink in self._host.uplinks if uplink.peer_asn in notice.lost}
            prefix = f"{notice.sender}/32"
            if self._traffic.told_lost(prefix, frozenset(lost), now + notice.seconds):
                told.append(prefix)
        self._kernel.write(self._traffic.changes(now, told))

    def _down(self, device: str, witness: Witness, now: float, failed: bool) -> None:
        cause = self._traffic.uplinks.down(device, witness, now, failed)
        if cause is None:
            return
        self._write(now)
        seconds = self._clock.monotonic() - now
        states = [self._traffic.uplinks.state(each, now) for each in self._peers]
        self._tell(now)
        self._due = min(self._due, now + _AGAIN)
        self._notice(
            Failover(
                self._clock.now() - seconds,
                device,
                self._peers[device],
                cause,
                seconds,
                len(states) - states.count("dead"),
            )
        )

    def _write(self, now: float) -> None:
        self._kernel.write(self._traffic.changes(now))

    def _tell(self, now: float) -> None:
        """Tell other hosts which switches this one is not reached through; once more when that is over."""
        uplinks = self._traffic.uplinks
        lost = {each.peer_asn for each in self._host.uplinks if uplinks.state(each.device, now) != "up"}
        if lost or self._told:
            others = [prefix[:-3] for prefix in self._traffic.prefixes() if prefix.endswith("/32")]
            self._notices.tell(others, lost, _TOLD_FOR * self._host.timers.settle)
        self._told = bool(lost)

    def _close(self) -> None:
        self._selector.close()
        self._bfd.close()
        self._kernel.close()
        self._notices.close()
        if self._echo:
            self._echo.close()
        self._wake.close()
        self._woken.close()
