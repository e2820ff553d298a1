"""Daemons that die are started again: at once, and after growing pauses where one dies again and again."""

import logging
from pathlib import Path
from typing import Protocol

from trimtab.core import Clock

_LEAST_DELAY, _MOST_DELAY = 1.0, 30.0  # s before a daemon that dies again and again is started again

log = logging.getLogger(__name__)


class Running(Protocol):
    """FRR's daemons, as far as who keeps them alive deals with them."""

    folder: Path

    def missing(self) -> tuple[str, ...]: ...
    def restart(self, name: str) -> None: ...
    def wait_for_death(self, seconds: float, wake: int) -> bool: ...


class Revival:
    """Of one host's daemons."""

    def __init__(self, daemons: Running, clock: Clock) -> None:
        self._daemons, self._clock = daemons, clock
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._dead: frozenset[str] = frozenset()  # of those that are to be started later

    def revive(self) -> None:
        """Start those that are missing and due."""
        now = self._clock.monotonic()
        missing = self._daemons.missing()
        self._dead = frozenset(name for name in missing if now < self._due.get(name, now))
        for name in missing:
            if name not in self._dead:
                self._delays[name] = min(2 * self._delays.get(name, _LEAST_DELAY / 2), _MOST_DELAY)
                self._due[name] = now + self._delays[name]
                self._dead |= {name}  # unless it starts
                log.warning("FRR's %s has died and is started again", name)
                self._daemons.restart(name)
                self._dead -= {name}
        for name in [
            name for name in self._due if name not in missing and now > self._due[name] + _MOST_DELAY
        ]:
            del self._due[name], self._delays[name]

    def wait(self, seconds: float, wake: int) -> bool:
        """Whether there is something to revive within that time; ends early when `wake` is readable."""
        pause = min((self._due[name] for name in self._dead), default=float("inf")) - self._clock.monotonic()
        died = self._daemons.wait_for_death(max(0.0, min(seconds, pause)), wake)
        return died or pause <= seconds
