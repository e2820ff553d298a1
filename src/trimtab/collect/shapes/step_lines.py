"""What a training script prints of its steps: lines such as `step 12 loss 0.4312 time 1731712345.123`."""

import math
import re
import time
from dataclasses import dataclass, field

_LINE = re.compile(rb"^\s*step\s+(\d+)\s+loss\s+(\S+)(?:\s+time\s+(\d+(?:\.\d+)?))?")
_LONGEST_LINE = 2**16  # bytes; what has no end is no line of ours
_KEPT = 200  # characters of the last other line, for a sentence about what went wrong


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has ended: its number, its loss, and when, in seconds since the epoch."""

    number: int
    loss: float
    time: float

    @property
    def diverged(self) -> bool:
        """Whether the loss is no number any more."""
        return not math.isfinite(self.loss)


@dataclass(slots=True)
class StepLines:
    """Fed with output as it comes; a line without a time counts from when it came."""

    steps: list[Step] = field(default_factory=list)
    last_words: str = ""  # the last line that was none of a step
    _rest: bytes = b""

    def feed(self, output: bytes) -> None:
        """Take in what was printed since the last time."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                self.last_words = line.decode(errors="replace").strip()[:_KEPT] or self.last_words
                continue
            try:
                loss = float(found[2])
            except ValueError:
                loss = math.nan
            self.steps.append(Step(int(found[1]), loss, float(found[3]) if found[3] else time.time()))
