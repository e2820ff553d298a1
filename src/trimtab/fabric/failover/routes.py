"""Where each route's traffic should go: what the routing daemon wants, without what is dead.

Nothing here talks to the kernel. Who listens to it tells `Traffic` what was heard, and `changes` are the
routes that should be written because they are not as they should be.
"""

import json
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    witnesses: set[Witness] = field(default_factory=set)  # who says that it is down
    since: float | None = None  # when it came to be as it is; None from the start
    failures: int = 0  # not yet forgotten
    held_until: float = 0.0


class Uplinks:
    """The state of each, by device; times are of a clock that never goes backwards."""

    def __init__(self, devices: Iterable[str], hold: float, window: float = WINDOW) -> None:
        self._uplinks = {device: _Uplink() for device in devices}
        self._hold, self._window, self._most = hold, window, MOST * hold

    def resume(self, device: str, failures: int, since: float, held_until: float) -> None:
        """Go on with what was known of one, if it is one of these; no hold is longer than it can be."""
        if device in self._uplinks:
            until = min(held_until, since + self._most)
            self._uplinks[device] = _Uplink(set(), since, max(0, failures), until)

    def down(self, device: str, witness: Witness, now: float, failed: bool = True) -> Cause | None:
        """Somebody says it is down. Its cause where it was in use or held so far, else None.

        With `failed` false it never was up as far as this witness knows: it is dead, but nothing has failed.
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
        """Somebody says it is up again."""
        uplink = self._uplinks[device]
        if witness not in uplink.witnesses:
            return
        uplink.witnesses.discard(witness)
        if not uplink.witnesses:
            uplink.since = now
            uplink.held_until = now + self.hold_of(uplink.failures)

    def state(self, device: str, now: float) -> State:
        """Whether it can be used."""
        uplink = self._uplinks[device]
        if uplink.witnesses:
            return "dead"
        return "held" if now < uplink.held_until else "up"

    def failures(self, device: str, now: float) -> int:
        """How often it failed lately: one is forgotten in each window for which it was not dead."""
        uplink = self._uplinks[device]
        well = 0.0 if uplink.witnesses or uplink.since is None else now - uplink.since
        return max(0, uplink.failures - int(well / self._window))

    def hold_of(self, failures: int) -> float:
        """Seconds for which it must behave after so many failures."""
        return min(self._hold * 2.0 ** min(failures - 1, 64), self._most) if failures else 0.0

    def since(self, device: str) -> float | None:
        """When it came to be up or down; None where it always was."""
        return self._uplinks[device].since

    def held_until(self, device: str, now: float) -> float | None:
        """When it will be used again; None where it is not held."""
        return self._uplinks[device].held_until if self.state(device, now) == "held" else None

    def next_release(self, now: float) -> float | None:
        """When the next held one will be used again."""
        return min((time for device in self._uplinks if (time := self.held_until(device, now))), default=None)

    def devices(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._uplinks)


_BEST, _HELD, _LOST, _DEAD = range(4)


@dataclass(frozen=True, slots=True, order=True)
class Hop:
    """A next hop: through which device to whom, and its share of the flows."""

    device: str
    gateway: str
    weight: int = 1


Hops = tuple[Hop, ...]  # sorted
Key = tuple[str, int, int]  # prefix, table, priority: what makes a route another one


@dataclass(frozen=True, slots=True)
class Route:
    """A route to `prefix`. `head` and `rest` are all of it but its next hops, as the kernel wrote it."""

    prefix: str
    key: Key
    head: bytes = b""
    rest: bytes = b""


class Change(NamedTuple):
    """Next hops that a route should get. Only one that is to come `anew` is made where there is none: what
    the routing daemon has removed unheard must not come back."""

    route: Route
    hops: Hops
    anew: bool


@dataclass(slots=True)
class _Entry:
    route: Route
    wanted: Hops  # by the routing daemon
    kernel: Hops
    touched: int  # the last time something was heard of it or written


@dataclass(frozen=True, slots=True)
class _Lost:
    """What another host said: it cannot be reached through these devices."""

    devices: frozenset[str]
    until: float


def chosen(hops: Hops, dead: Collection[str], held: Collection[str], lost: Collection[str]) -> Hops:
    """The hops to use: the good ones; else those that are held, else lost, else dead. Never none of some."""

    def rank(hop: Hop) -> int:
        if hop.device in dead:
            return _DEAD
        if hop.device in lost:
            return _LOST
        return _HELD if hop.device in held else _BEST

    best = min(map(rank, hops), default=_BEST)
    return tuple(hop for hop in hops if rank(hop) == best)


class Traffic:
    """All routes over the uplinks. `gone` are destinations without one, and since when (a wall clock's s)."""

    def __init__(self, uplinks: Uplinks, gone: Mapping[str, float] | None = None) -> None:
        self.uplinks = uplinks
        self.gone = dict(gone or {})
        self._entries: dict[Key, _Entry] = {}
        self._keys: dict[str, set[Key]] = {}  # by prefix
        self._removed: dict[str, tuple[Route, int]] = {}  # by prefix
        self._lost: dict[str, _Lost] = {}
        self._count = 0

    def written(self, route: Route, hops: Hops) -> None:
        """The routing daemon has written a route: this is what it wants now, and what the kernel has."""
        self._set(route, hops, hops)

    def removed(self, key: Key, wall: float) -> None:
        """A route is no more."""
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
        """To be given back with what is asked for now: what is heard in between is newer than the answer."""
        return self._count

    def dumped(self, routes: Mapping[Key, tuple[Route, Hops]], mark: int, wall: float) -> None:
        """All routes as the kernel has them.

        One that differs from what was heard of it was changed by somebody: that is what is wanted, until the
        routing daemon itself says otherwise.
        """
        for key, (route, hops) in routes.items():
            entry = self._entries.get(key)
            if entry is None or (entry.touched <= mark and entry.kernel != hops):
                self.written(route, hops)
        for key in [
            key for key, entry in self._entries.items() if entry.touched <= mark and key not in routes
        ]:
            self.removed(key, wall)

    def believed(self, wanted: Mapping[str, Hops], mark: int) -> int:
        """What the routing daemon itself says it has in the kernel, by prefix; how many routes that corrects.

        It may believe in next hops, or in whole routes, that the kernel has dropped.
        """
        corrected = 0
        for entry in self._entries.values():
            hops = wanted.get(entry.route.prefix)
            if hops and entry.touched <= mark and entry.wanted != hops:
                entry.wanted = hops
                corrected += 1
        for prefix, (route, removed) in list(self._removed.items()):
            if wanted.get(prefix) and removed <= mark:
                self._set(route, wanted[prefix], ())
                corrected += 1
        return corrected

    def told_lost(self, prefix: str, devices: frozenset[str], until: float) -> bool:
        """The host behind `prefix` cannot be reached through these devices until then; False if unknown."""
        if prefix not in self._keys:
            return False
        self._lost[prefix] = _Lost(devices, until)
        return True

    def changes(self, now: float, prefixes: Iterable[str] | None = None) -> list[Change]:
        """What should be written to the kernel, of all or of these destinations; it counts as written."""
        states = {device: self.uplinks.state(device, now) for device in self.uplinks.devices()}
        dead = {device for device, state in states.items() if state == "dead"}
        held = {device for device, state in states.items() if state == "held"}
        found = []
        best = dict[tuple[Hops, Collection[str]], Hops]()  # thousands of routes have the same few next hops
        for entry in self._entries.values() if prefixes is None else self._of(prefixes):
            given = entry.wanted, self._lost_to(entry.route.prefix, now)
            if given not in best:
                best[given] = chosen(entry.wanted, dead, held, given[1])
            hops = best[given]
            if hops != entry.kernel:
                self._count += 1
                found.append(Change(entry.route, hops, anew=not entry.kernel))
                entry.kernel, entry.touched = hops, self._count
        return found

    def next_change(self, now: float) -> float | None:
        """When something changes although nothing is heard: a hold ends, or what was lost no longer is."""
        times = [lost.until for lost in self._lost.values() if lost.until > now]
        release = self.uplinks.next_release(now)
        return min([*times, *([] if release is None else [release])], default=None)

    def hops(self) -> dict[str, Hops]:
        """Next hops by prefix as the kernel has them."""
        return {entry.route.prefix: entry.kernel for entry in self._entries.values()}

    def prefixes(self) -> tuple[str, ...]:
        """All destinations."""
        return tuple(self._keys)

    def _set(self, route: Route, wanted: Hops, kernel: Hops) -> None:
        self._count += 1
        self._entries[route.key] = _Entry(route, wanted, kernel, self._count)
        self._keys.setdefault(route.prefix, set()).add(route.key)
        self._removed.pop(route.prefix, None)
        self.gone.pop(route.prefix, None)

    def _of(self, prefixes: Iterable[str]) -> Iterator[_Entry]:
        for prefix in prefixes:
            yield from (self._entries[key] for key in self._keys.get(prefix, ()))

    def _lost_to(self, prefix: str, now: float) -> Collection[str]:
        lost = self._lost.get(prefix)
        return lost.devices if lost is not None and now < lost.until else ()


_COMMAND = "show ip route bgp json"
_END = 4  # bytes at the end of an answer: three zeros and a status, which is zero too where all is well
_PATIENCE = 5.0  # s


def wanted_hops(folder: Path) -> dict[str, Hops]:
    """Next hops by prefix, of routes that the zebra with its socket in `folder` has chosen and installed.

    Those too that the kernel refused: zebra does not try again.
    """
    try:
        return hops_of(json.loads(_ask(folder / "zebra.vty", _COMMAND) or "{}"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"zebra's routes cannot be read: {error}") from None


def hops_of(told: Mapping[str, Any]) -> dict[str, Hops]:
    """Of what zebra tells as JSON."""
    return {prefix: hops for prefix, routes in told.items() for hops in _chosen(routes)}


def _chosen(routes: list[Mapping[str, Any]]) -> Iterator[Hops]:
    for route in routes:
        if route.get("selected") and (route.get("installed") or route.get("failed")):
            hops = [
                Hop(hop["interfaceName"], hop["ip"], int(hop.get("weight", 1)))
                for hop in route["nexthops"]
                if hop.get("active") and "ip" in hop and "interfaceName" in hop
            ]
            if hops:
                yield tuple(sorted(hops))


def _ask(path: Path, command: str) -> str:
    """What the daemon behind that socket answers, as it does to vtysh."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(_PATIENCE)
        made.connect(str(path))
        made.sendall(command.encode() + b"\0")
        answer = b""
        while not answer.endswith(bytes(_END - 1), 0, -1):
            part = made.recv(1 << 16)
            if not part:
                raise TrimtabError(f"{path} does not answer to {command!r}")
            answer += part
    if answer[-1]:
        raise TrimtabError(f"{path} does not know {command!r}")
    return answer[:-_END].decode(errors="replace")
