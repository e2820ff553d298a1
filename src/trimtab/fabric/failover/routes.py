"""Next hops that each route should have: those that the routing daemon wants, without dead uplinks.

An uplink is dead while any witness says so (the BFD session, the carrier, lost probes). When none does any
more it is held for `hold` seconds. The hold doubles with each failure that follows, up to `MOST` times as
long; one failure is forgotten with each `window` seconds in which the uplink was not dead.

Nothing here talks to the kernel: `Traffic` is given events, and `changes` are the routes to be written.
"""

import json
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trimtab.core import TrimtabError

Witness = Literal["bfd", "carrier", "echo"]
Cause = Literal["bfd", "carrier", "echo", "flap"]
State = Literal["up", "held", "dead"]

WINDOW = 30.0  # s
MOST = 16  # holds


@dataclass(slots=True)
class _Uplink:
    witnesses: set[Witness] = field(default_factory=set)  # of its being down
    since: float | None = None  # when its state began; None from the start
    failures: int = 0  # not yet forgotten
    held_until: float = 0.0


class Uplinks:
    """The state of each uplink, by device; times are monotonic seconds."""

    def __init__(self, devices: Iterable[str], hold: float, window: float = WINDOW) -> None:
        self._uplinks = {device: _Uplink() for device in devices}
        self._hold, self._window, self._most = hold, window, MOST * hold

    def resume(self, device: str, failures: int, since: float, held_until: float) -> None:
        """Set the state that an earlier agent recorded, with a bounded hold; skips unknown devices."""
        if device in self._uplinks:
            until = min(held_until, since + self._most)
            self._uplinks[device] = _Uplink(set(), since, max(0, failures), until)

    def down(self, device: str, witness: Witness, now: float, failed: bool = True) -> Cause | None:
        """A witness says it is down. The cause of the failure if it was up or held before, else None.

        With `failed` false the witness never saw it up: it is dead, but nothing has failed.
        """
        uplink = self._uplinks[device]
        before = self.state(device, now)
        if before != "dead":
            uplink.failures = self.failures(device, now) + failed
            uplink.since = now
        uplink.witnesses.add(witness)
        if before == "dead" or not failed:
            return None
        return witness if uplink.failures == 1 else "flap"

    def up(self, device: str, witness: Witness, now: float) -> None:
        """A witness says it is up again."""
        uplink = self._uplinks[device]
        if witness not in uplink.witnesses:
            return
        uplink.witnesses.discard(witness)
        if not uplink.witnesses:
            uplink.since = now
            uplink.held_until = now + self.hold_of(uplink.failures)

    def state(self, device: str, now: float) -> State:
        uplink = self._uplinks[device]
        if uplink.witnesses:
            return "dead"
        return "held" if now < uplink.held_until else "up"

    def failures(self, device: str, now: float) -> int:
        """Recent failures: one is forgotten in each window for which it was not dead."""
        uplink = self._uplinks[device]
        well = 0.0 if uplink.witnesses or uplink.since is None else now - uplink.since
        return max(0, uplink.failures - int(well / self._window))

    def hold_of(self, failures: int) -> float:
        """Seconds for which it is held after so many failures."""
        return min(self._hold * 2.0 ** min(failures - 1, 64), self._most) if failures else 0.0

    def since(self, device: str) -> float | None:
        """When it last went up or down; None if it never did."""
        return self._uplinks[device].since

    def held_until(self, device: str, now: float) -> float | None:
        """When it will be used again; None if it is not held."""
        return self._uplinks[device].held_until if self.state(device, now) == "held" else None

    def devices(self) -> tuple[str, ...]:
        return tuple(self._uplinks)


_BEST, _HELD, _LOST, _DEAD = range(4)


@dataclass(frozen=True, slots=True, order=True)
class Hop:
    """A next hop: its device, its gateway, and its share of the flows."""

    device: str
    gateway: str
    weight: int = 1


Hops = tuple[Hop, ...]  # sorted
Key = tuple[str, int, int]  # prefix, table, priority: they identify a route


@dataclass(frozen=True, slots=True)
class Route:
    """A route to `prefix`. `head` and `rest` are the kernel's message without the next hops."""

    prefix: str
    key: Key
    head: bytes = b""
    rest: bytes = b""


class Change(NamedTuple):
    """New next hops of a route. Only with `create` is a missing route made: one that the routing daemon has
    removed must not come back."""

    route: Route
    hops: Hops
    create: bool


@dataclass(slots=True)
class _Entry:
    route: Route
    desired: Hops  # by the routing daemon
    kernel: Hops
    touched: int  # count of events when it last changed


@dataclass(frozen=True, slots=True)
class _Lost:
    """Another host's notice: it cannot be reached through these devices."""

    devices: frozenset[str]
    until: float


def chosen(hops: Hops, dead: Collection[str], held: Collection[str], lost: Collection[str]) -> Hops:
    """The best hops: up, else held, else lost, else dead. Non-empty if `hops` is non-empty."""

    def rank(hop: Hop) -> int:
        if hop.device in dead:
            return _DEAD
        if hop.device in lost:
            return _LOST
        return _HELD if hop.device in held else _BEST

    best = min(map(rank, hops), default=_BEST)
    return tuple(hop for hop in hops if rank(hop) == best)


class Traffic:
    """All routes over the uplinks. `gone` are destinations without a route, and since when (wall clock)."""

    def __init__(self, uplinks: Uplinks, gone: Mapping[str, float] | None = None) -> None:
        self.uplinks = uplinks
        self.gone = dict(gone or {})
        self._entries: dict[Key, _Entry] = {}
        self._keys: dict[str, set[Key]] = {}  # by prefix
        self._removed: dict[str, tuple[Route, int]] = {}  # by prefix
        self._lost: dict[str, _Lost] = {}  # by prefix
        self._count = 0

    def written(self, route: Route, hops: Hops) -> None:
        """The routing daemon has written a route: it wants these hops, and the kernel has them."""
        self._set(route, hops, hops)

    def removed(self, key: Key, wall: float) -> None:
        """A route was removed."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._count += 1
        keys = self._keys[entry.route.prefix]
        keys.discard(key)
        if not keys:
            del self._keys[entry.route.prefix]
            self._removed[entry.route.prefix] = (entry.route, self._count)
            self.gone[entry.route.prefix] = wall

    def mark(self) -> int:
        """Taken before a question and given back with the answer: events in between are newer than it."""
        return self._count

    def dumped(self, routes: Mapping[Key, tuple[Route, Hops]], mark: int, wall: float) -> None:
        """All routes of the kernel.

        One that differs from the recorded one was changed by another program: its hops are the desired ones,
        until the routing daemon itself says otherwise.
        """
        for key, (route, hops) in routes.items():
            entry = self._entries.get(key)
            if entry is None or (entry.touched <= mark and entry.kernel != hops):
                self.written(route, hops)
        for key, entry in list(self._entries.items()):
            if entry.touched <= mark and key not in routes:
                self.removed(key, wall)

    def believed(self, hops_by_prefix: Mapping[str, Hops], mark: int) -> int:
        """Routes that the routing daemon says it has in the kernel; how many that corrects.

        It may report next hops, or whole routes, that the kernel has dropped.
        """
        corrected = 0
        for entry in self._entries.values():
            hops = hops_by_prefix.get(entry.route.prefix)
            if hops and entry.touched <= mark and entry.desired != hops:
                entry.desired = hops
                corrected += 1
        for prefix, (route, removed) in list(self._removed.items()):
            if hops_by_prefix.get(prefix) and removed <= mark:
                self._set(route, hops_by_prefix[prefix], ())
                corrected += 1
        return corrected

    def lost_through(self, prefix: str, devices: frozenset[str], until: float) -> bool:
        """The host at `prefix` cannot be reached through these devices until then; False if unknown."""
        if prefix not in self._keys:
            return False
        self._lost[prefix] = _Lost(devices, until)
        return True

    def changes(self, now: float, prefixes: Iterable[str] | None = None) -> list[Change]:
        """Changes to write to the kernel, for all or for these destinations; they count as written."""
        states = {device: self.uplinks.state(device, now) for device in self.uplinks.devices()}
        dead = {device for device, state in states.items() if state == "dead"}
        held = {device for device, state in states.items() if state == "held"}
        entries: Iterable[_Entry] = self._entries.values()
        if prefixes is not None:
            entries = [self._entries[key] for prefix in prefixes for key in self._keys.get(prefix, ())]
        changes = []
        best = dict[tuple[Hops, Collection[str]], Hops]()  # thousands of routes share a few sets of next hops
        for entry in entries:
            loss = self._lost.get(entry.route.prefix)
            choice = entry.desired, loss.devices if loss is not None and now < loss.until else ()
            if choice not in best:
                best[choice] = chosen(entry.desired, dead, held, choice[1])
            hops = best[choice]
            if hops != entry.kernel:
                self._count += 1
                changes.append(Change(entry.route, hops, create=not entry.kernel))
                entry.kernel, entry.touched = hops, self._count
        return changes

    def next_change(self, now: float) -> float | None:
        """When something changes without an event: a hold ends, or a notice of another host expires."""
        times = [lost.until for lost in self._lost.values() if lost.until > now]
        times += [time for device in self.uplinks.devices() if (time := self.uplinks.held_until(device, now))]
        return min(times, default=None)

    def hops(self) -> dict[str, Hops]:
        """The kernel's next hops by prefix."""
        return {entry.route.prefix: entry.kernel for entry in self._entries.values()}

    def prefixes(self) -> tuple[str, ...]:
        """All destinations."""
        return tuple(self._keys)

    def _set(self, route: Route, desired: Hops, kernel: Hops) -> None:
        self._count += 1
        self._entries[route.key] = _Entry(route, desired, kernel, self._count)
        self._keys.setdefault(route.prefix, set()).add(route.key)
        self._removed.pop(route.prefix, None)
        self.gone.pop(route.prefix, None)


_COMMAND = "show ip route bgp json"
_END = 4  # bytes at the end of an answer: three zeros and a status, which is zero too on success
_PATIENCE = 5.0  # s


def daemon_hops(folder: Path) -> dict[str, Hops]:
    """Next hops by prefix, of routes that the zebra with its socket in `folder` has chosen and installed.

    Includes routes that the kernel refused: zebra does not try again.
    """
    try:
        return hops_of(json.loads(_ask(folder / "zebra.vty", _COMMAND) or "{}"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"zebra's routes cannot be read: {error}") from None


def hops_of(routes_by_prefix: Mapping[str, Any]) -> dict[str, Hops]:
    """Next hops by prefix in zebra's JSON."""
    hops_by_prefix = dict[str, Hops]()
    for prefix, routes in routes_by_prefix.items():
        for route in routes:
            if route.get("selected") and (route.get("installed") or route.get("failed")):
                hops = [
                    Hop(hop["interfaceName"], hop["ip"], int(hop.get("weight", 1)))
                    for hop in route["nexthops"]
                    if hop.get("active") and "ip" in hop and "interfaceName" in hop
                ]
                if hops:
                    hops_by_prefix[prefix] = tuple(sorted(hops))
    return hops_by_prefix


def _ask(path: Path, command: str) -> str:
    """The answer of the daemon behind that socket, as vtysh gets it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(str(path))
        connection.sendall(command.encode() + b"\0")
        answer = b""
        while not answer.endswith(bytes(_END - 1), 0, -1):
            part = connection.recv(1 << 16)
            if not part:
                raise TrimtabError(f"{path} does not answer {command!r}")
            answer += part
    if answer[-1]:
        raise TrimtabError(f"{path} does not know the command {command!r}")
    return answer[:-_END].decode(errors="replace")
