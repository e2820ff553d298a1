"""Keeps a host's traffic on working uplinks: hears of failures, rewrites routes, and tells other hosts."""

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
from typing import Any

from trimtab.core import RealClock
from trimtab.fabric.failover.echo import EchoWatch
from trimtab.fabric.failover.kernel_routes import EventsLostError, KernelRoutes, LinkChange, Removed, Written
from trimtab.fabric.failover.messages import BfdSocket, Notices
from trimtab.fabric.failover.routes import Cause, Hops, State, Traffic, Uplinks, Witness
from trimtab.fabric.machine import inside
from trimtab.fabric.topology import FabricHost
from trimtab.kernel import BackgroundWriter

KEPT = 100  # failovers in memory
_MOST = 1 << 20  # bytes of the file, then it is rotated
_NOTICE_PERIODS = 3  # settle periods for which a notice is valid
_RECONNECT = 0.05  # s
_AGAIN = 0.02  # s after which a failover is checked, and sent to others, once more
# On a busy machine it runs before others; short of real-time priority, which can stop a machine.
_NICENESS = -15

log = logging.getLogger(__name__)


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


class FailoverRecord(BackgroundWriter[Failover]):
    """The latest failovers; a background thread appends each to a file and calls `on_failover`."""

    def __init__(self, path: Path, on_failover: Callable[[Failover], None] = lambda failover: None) -> None:
        super().__init__(self._append, "a failover is not written down")
        self._path, self._on_failover = path, on_failover
        self._latest = deque(_read_failovers(path), maxlen=KEPT)
        self.count, self.seconds = 0, 0.0  # since this record began

    def __call__(self, failover: Failover) -> None:
        """Record a failover without waiting for a disk."""
        self.count, self.seconds = self.count + 1, self.seconds + failover.seconds
        self._latest.append(failover)
        self.put(failover)

    @property
    def latest(self) -> tuple[Failover, ...]:
        """Oldest first."""
        return tuple(self._latest)

    def _append(self, failover: Failover) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MOST:
            self._path.replace(self._path.with_suffix(".old"))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failover)) + "\n")
        self._on_failover(failover)


def _read_failovers(path: Path) -> Iterator[Failover]:
    """Failovers in a file, oldest first, without lines that cannot be read."""
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                yield Failover(**json.loads(line))


@dataclass(frozen=True, slots=True)
class UplinkNow:
    """State of an uplink, since when, and until when it is held if it is (wall clock seconds)."""

    device: str
    peer: str
    state: State
    since: float | None
    held_until: float | None
    failures: int
    echo: bool | None = None  # whether probes come back at the moment; None if none did since it is up


@dataclass(frozen=True, slots=True)
class Paths:
    """State of uplinks, devices that lead to each destination, and destinations without a path."""

    uplinks: tuple[UplinkNow, ...]
    devices: dict[str, tuple[str, ...]]
    gone: dict[str, float]  # since
    bfd: bool  # whether bfdd answers
    late: int  # ticks that came late: this machine was busy


class PathKeeper:
    """One per host. `run` in a thread; everything else may be called from others."""

    def __init__(
        self,
        host: FabricHost,
        bfd: Path,
        namespace: str | None = None,
        on_failover: Callable[[Failover], None] = lambda failover: None,
        gone: Mapping[str, float] | None = None,
        before: Iterable[UplinkNow] = (),
    ) -> None:
        self._host = host
        self._peers = {uplink.device: str(uplink.peer) for uplink in host.uplinks}
        self._by_peer = {peer: device for device, peer in self._peers.items()}
        self._on_failover = on_failover
        self._clock = RealClock()
        self._lock = threading.Lock()
        self._traffic = Traffic(self._resumed(before), gone)
        self._bfd = BfdSocket(bfd)
        self._heard_up = set[str]()  # devices whose session bfdd has reported up since we are connected
        self._ended = False
        self._has_told = False  # whether other hosts know of a loss
        self._due = 0.0  # when routes are next dumped and notices sent
        self._look_at = 0.0  # when something may change, or is due, without an event
        self.ready = threading.Event()  # set once the kernel's routes are known
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._kernel, self._notices, self._echo = inside(namespace, self._sockets)

    def _resumed(self, before: Iterable[UplinkNow]) -> Uplinks:
        """Uplinks as an earlier keeper left them. A dead one is held: it may have come back just now."""
        uplinks = Uplinks(self._peers, self._host.timers.hold)
        now, wall = self._clock.monotonic(), self._clock.now()
        for uplink in before:
            if uplink.state == "dead":
                held_until = now + uplinks.hold_of(uplink.failures)
                uplinks.resume(uplink.device, uplink.failures, now, held_until)
            elif uplink.since is not None:
                since = now - max(0.0, wall - uplink.since)
                uplinks.resume(uplink.device, uplink.failures, since, now + (uplink.held_until or 0.0) - wall)
        return uplinks

    def _sockets(self) -> tuple[KernelRoutes, Notices, EchoWatch | None]:
        timing = self._host.timers.echo
        with contextlib.ExitStack() as stack:
            kernel = KernelRoutes(tuple(self._peers))
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
            self._kernel.dumping: self._on_dump,
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
            opened: list[Any] = [
                self._selector,
                self._bfd,
                self._kernel,
                self._notices,
                self._wake,
                self._woken,
            ]
            for source in [*opened, self._echo] if self._echo else opened:
                source.close()

    def stop(self) -> None:
        """End `run`."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._wake.send(b".")

    def mark(self) -> int:
        """Taken before the routing daemon is asked, and given to `believe` with its answer."""
        with self._lock:
            return self._traffic.mark()

    def believe(self, hops_by_prefix: Mapping[str, Hops], mark: int) -> int:
        """Take in the routes that the routing daemon says it has in the kernel; how many were wrong there."""
        with self._lock:
            corrected = self._traffic.believed(hops_by_prefix, mark)
            self._write(self._clock.monotonic())
            return corrected

    def look(self) -> Paths:
        """The state now."""
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
            hops_by_prefix = self._traffic.hops()
            devices = {prefix: tuple(hop.device for hop in hops) for prefix, hops in hops_by_prefix.items()}
            late = self._echo.late if self._echo else 0
            return Paths(tuple(rows), devices, dict(self._traffic.gone), self._bfd.connected, late)

    def _step(self, now: float) -> float:
        """Do what is due without an event; seconds until the next of it.

        Probes leave hundreds of times a second, so routes are not checked for each.
        """
        if self._echo and now >= self._echo.next_tick:
            for device, state in self._echo.tick(now):
                if state == "lost":
                    self._down(device, "echo", now, failed=True)
                else:
                    self._traffic.uplinks.up(device, "echo", now)
                self._look_at = 0.0
        if now >= self._look_at:
            if not self._bfd.connected and self._bfd.connect():
                self._selector.register(self._bfd, selectors.EVENT_READ, self._on_bfd)
            if now >= self._due:
                self._due = now + self._host.timers.settle
                self._kernel.request_dump(self._traffic.mark())
                self._send_notices(now)
            self._write(now)
            times = [
                self._due,
                self._traffic.next_change(now),
                None if self._bfd.connected else now + _RECONNECT,
            ]
            self._look_at = min(time for time in times if time is not None)
        until = min(self._look_at, self._echo.next_tick) if self._echo else self._look_at
        return max(0.0, until - self._clock.monotonic())

    def _on_bfd(self, now: float) -> None:
        handle = self._bfd.fileno()
        for session in self._bfd.sessions():
            device = self._by_peer.get(session.peer)
            if device is None:
                continue
            if session.state == "up":
                self._heard_up.add(device)
            if session.state in ("up", "shutdown"):
                self._traffic.uplinks.up(device, "bfd", now)
            else:
                self._down(device, "bfd", now, device in self._heard_up)
                self._forget_echoes(device, now)
        if not self._bfd.connected:  # the network stays as it is; the next bfdd reports all states
            self._selector.unregister(handle)
            self._heard_up.clear()

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
            self._kernel.request_dump(self._traffic.mark())
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
        """It is dead for another reason; the switch that is there later may send no probes back."""
        if self._echo:
            self._echo.forget(device)
            self._traffic.uplinks.up(device, "echo", now)

    def _on_dump(self, now: float) -> None:
        dump = self._kernel.read_dump()
        if dump is None:
            return
        for device in self._peers:
            self._on_link(LinkChange(device, dump.links.get(device, False)), now, self.ready.is_set())
        self._traffic.dumped(dump.routes, dump.mark, self._clock.now())
        self._write(now)
        self.ready.set()

    def _on_refusal(self, now: float) -> None:
        refused = self._kernel.refused()
        if refused:  # the next dump shows what the kernel has
            log.warning("the kernel refused %d routes", refused)

    def _on_notice(self, now: float) -> None:
        prefixes = list[str]()
        for notice in self._notices.received():
            lost = {uplink.device for uplink in self._host.uplinks if uplink.peer_asn in notice.lost}
            prefix = f"{notice.sender}/32"
            if self._traffic.lost_through(prefix, frozenset(lost), now + notice.seconds):
                prefixes.append(prefix)
        self._kernel.write(self._traffic.changes(now, prefixes))

    def _down(self, device: str, witness: Witness, now: float, failed: bool) -> None:
        cause = self._traffic.uplinks.down(device, witness, now, failed)
        if cause is None:
            return
        self._write(now)
        seconds = self._clock.monotonic() - now
        paths = sum(self._traffic.uplinks.state(other, now) != "dead" for other in self._peers)
        self._send_notices(now)
        self._due = min(self._due, now + _AGAIN)
        time = self._clock.now() - seconds
        self._on_failover(Failover(time, device, self._peers[device], cause, seconds, paths))

    def _write(self, now: float) -> None:
        self._kernel.write(self._traffic.changes(now))

    def _send_notices(self, now: float) -> None:
        """Tell other hosts which switches do not reach this one; once more when that is over."""
        uplinks = self._traffic.uplinks
        lost = {uplink.peer_asn for uplink in self._host.uplinks if uplinks.state(uplink.device, now) != "up"}
        if lost or self._has_told:
            others = [prefix[:-3] for prefix in self._traffic.prefixes() if prefix.endswith("/32")]
            self._notices.send(others, lost, _NOTICE_PERIODS * self._host.timers.settle)
        self._has_told = bool(lost)
