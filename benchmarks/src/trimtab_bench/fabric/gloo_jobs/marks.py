"""What a job prints beside its steps: when it was ready, what checkpoints took, what collectives took.

loaded 20 seconds 0.012
ready time 1731712345.123
saved 30 seconds 0.034
collective all_reduce bytes 65536 times 20 seconds 0.000184 worst 0.000412 rate 3.56e+08
"""

import re
from dataclasses import dataclass, field

_LINE = re.compile(
    rb"(?:(?P<ready>ready) time (\d+(?:\.\d+)?)"
    rb"|(?P<kept>saved|loaded) (\d+) seconds (\d+(?:\.\d+)?)"
    rb"|(?P<collective>collective) (\w+) bytes (\d+) times (\d+) seconds (\S+) worst (\S+) rate (\S+))\s*"
)
_LONGEST_LINE = 2**16  # bytes


@dataclass(frozen=True, slots=True)
class Collective:
    """An operation with messages of one size: median and worst seconds, bytes per second at the median."""

    operation: str
    bytes: int
    times: int
    seconds: float
    worst: float
    rate: float


@dataclass(slots=True)
class Marks:
    """Fed with output as it comes. `ready` is in seconds since the epoch, `saved` and `loaded` by step."""

    ready: float | None = None
    saved: dict[int, float] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, output: bytes) -> None:
        """Take in what was printed since the last time."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            if (found := _LINE.fullmatch(line)) is not None:
                self._take(found)

    def _take(self, found: "re.Match[bytes]") -> None:
        if found["ready"]:
            self.ready = float(found[2])
        elif found["kept"]:
            kept = self.saved if found["kept"] == b"saved" else self.loaded
            kept[int(found[4])] = float(found[5])
        else:
            numbers = [float(found[place]) for place in (10, 11, 12)]
            self.collectives.append(Collective(found[7].decode(), int(found[8]), int(found[9]), *numbers))
