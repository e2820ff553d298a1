"""Which uplinks can be used: who says that one is down, and how long it must behave before it is used again.

An uplink is dead while anyone says so (the BFD session, the carrier, probes that do not come back). When
nobody does any more it is held for `hold` seconds. They double with each failure that follows, up to `MOST`
times as long; one failure is forgotten with each `window` seconds in which it was not dead.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

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
