"""Which uplinks bring a host's own packets back: the rule alone, without sockets.

At every tick a probe leaves by each uplink, for the switch to send straight back. An uplink is lost when
`multiplier` probes came back on another one since the last came back here. Where no other ever brought one
back, the host's own clock stands for it: at a tick that came in time, earlier probes should be back. So a
machine that was away (paused by its hypervisor, busy with something else) takes no link for dead: meanwhile
nothing comes back anywhere, and the tick comes late. Where all uplinks fall silent at once nothing is said
either; there is no better path to move to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

Looped = Literal["unknown", "well", "lost"]
"""Whether probes come back: not yet known, or never since it was forgotten; they do; they did."""

_LATE = 0.5  # of an interval, after which a tick is not in time
_LEAST = 0.25  # of an interval, that a probe has to come back before the next tick


@dataclass(slots=True)
class _Uplink:
    looped: Looped = "unknown"
    newest: int = 0  # the number of the last probe that came back
    back: int = 0  # how many came back so far
    row: int = 0  # how many one after the other, without a gap
    answered: bool = False  # since the last tick
    due: int = 0  # probes that had been due by the clock when the last came back
    others: dict[str, int] = field(default_factory=dict)  # how many were back there at that moment


class Echoes:
    """Of one host. Times are seconds of a clock that never goes backwards; probes are numbered from 1."""

    def __init__(self, devices: Iterable[str], interval: float, multiplier: int, now: float) -> None:
        self._uplinks = {device: _Uplink() for device in devices}
        self._interval, self._multiplier = interval, multiplier
        self._due = 0  # probes that should be back by the clock
        self.number = 0  # of the latest probe
        self.next_tick = now
        self.late = 0  # ticks that came late

    def came(self, device: str, number: int) -> None:
        """A probe is back; one that others have overtaken, or a copy, says nothing new."""
        uplink = self._uplinks[device]
        if uplink.newest < number <= self.number:
            uplink.row = uplink.row + 1 if number == uplink.newest + 1 else 1
            uplink.newest = number
            uplink.back += 1
            uplink.answered = True

    def tick(self, now: float) -> list[tuple[str, Looped]]:
        """What has changed, by device. All that came back is told before, the next probe is sent after."""
        if now - self.next_tick <= _LATE * self._interval:
            self._due = self.number
            self.next_tick += self._interval
        else:
            self.late += 1
            behind = (now - self.next_tick) / self._interval
            self.next_tick += ceil(behind + _LEAST) * self._interval
        self.number += 1
        changed = list[tuple[str, Looped]]()
        for device, uplink in self._uplinks.items():
            before = uplink.looped
            if uplink.answered:
                self._note(device, uplink)
            elif before == "well" and self._missed(device, uplink) >= self._multiplier:
                uplink.looped, uplink.row = "lost", 0
            if uplink.looped != before:
                changed.append((device, uplink.looped))
        return changed

    def forget(self, device: str) -> None:
        """It is down for another reason; when it is up again, another switch may be there."""
        self._uplinks[device].looped = "unknown"
        self._uplinks[device].row = 0

    def comes_back(self, device: str) -> bool | None:
        """Whether probes come back there at the moment; None where they never did since it is up."""
        uplink = self._uplinks[device]
        recent = self.number - uplink.newest <= self._multiplier
        return None if uplink.looped == "unknown" else uplink.looped == "well" and recent

    def _note(self, device: str, uplink: _Uplink) -> None:
        """Something came back: others are counted from here on."""
        uplink.answered = False
        uplink.due = self._due
        for name, other in self._uplinks.items():
            if name != device:
                uplink.others[name] = other.back
        if uplink.row >= self._multiplier:
            uplink.looped = "well"

    def _missed(self, device: str, uplink: _Uplink) -> int:
        """How many probes should have come back here since one did."""
        others = [
            other.back - uplink.others[name]
            for name, other in self._uplinks.items()
            if name != device and other.back
        ]
        return max(others, default=self._due - uplink.due)
