"""Keeps a data plane equal to what the control plane says, although messages get lost (seed 002, §3.4.2).

A message only says that something changed: what is true is asked for afresh, in full. So lost, doubled and
reordered messages do no harm. Where every message is lost, and where somebody changed the plane itself, the
next period's comparison, with the plane read back, puts things right.
"""

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trimtab.core import TrimtabError
from trimtab.fabric.reconcile.changes import Table, difference
from trimtab.fabric.reconcile.plane import DataPlane
from trimtab.fabric.reconcile.tunnel_view import Heard

_QUIET, _PATIENCE = 0.002, 0.020
"""Seconds: a burst of messages is over after so long without one, or so long after the last dump."""
_PERIODS_OF_TRUST, _LEAST_TRUST = 5, 5.0
"""A plane is trusted for so many periods, and so many seconds at least."""


class View(Protocol):
    """What the control plane says, and word that it may say something else now."""

    def entries(self) -> Table:
        """All of it, afresh."""

    def heard(self) -> Heard:
        """What the messages that wait amount to."""

    def fileno(self) -> int:
        """Readable when messages wait."""

    def close(self) -> None:
        """Look no more."""


@dataclass(slots=True)
class Counts:
    """What was done since the start; `repairs` are changes that the control plane did not ask for."""

    dumps: int = 0
    changes: int = 0
    repairs: int = 0
    lost: int = 0
    failures: int = 0


class Reconciler:
    """Of one view and one plane. `run` in a thread of its own, or `step` from a loop of yours."""

    def __init__(self, view: View, plane: DataPlane, period: float) -> None:
        self.plane = plane
        self._view = view
        self.period = period
        self._believed: Table | None = None  # what the plane has, as far as we know
        self._begun = False
        self._due = time.monotonic()
        self._dumped, self._last_dump = 0.0, 0.0  # when, and how long it took
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.counts = Counts()
        self.problem: str | None = None
        """Why the plane may not be right at the moment; None while it is."""

    def settle(self) -> None:
        """Compare everything: the plane's parts, and what it does, read back, with what it should do."""
        repaired = self.plane.prepare()
        actual = self.plane.entries()
        if self._begun:
            self.counts.repairs += repaired
        if self._believed is not None:
            self.counts.repairs += len(difference(self._believed, actual))
        self._believed, self._begun = actual, True
        self.follow()

    def follow(self) -> None:
        """Ask what should be, and change what differs from what is believed to be."""
        if self._believed is None:
            self.settle()
            return
        started = time.monotonic()
        desired = self._view.entries()
        self._dumped = time.monotonic()
        self._last_dump = self._dumped - started
        self.counts.dumps += 1
        changes = difference(desired, self._believed)
        if changes:
            self._believed = None  # until it is known to have gone well
            self.plane.apply(changes)
            self.counts.changes += len(changes)
        self._believed = desired
        self.plane.trust(max(_LEAST_TRUST, _PERIODS_OF_TRUST * self.period))

    def step(self, most: float | None = None) -> None:
        """Wait for word or for the period's end, `most` seconds at most, and do what is due."""
        left = max(0.0, self._due - time.monotonic())
        self._wait(left if most is None else min(left, most))
        heard = self._burst()
        if heard.devices or heard.lost or time.monotonic() >= self._due:
            self._due = time.monotonic() + self.period
            self._try(self.settle)
        elif heard:
            self._try(self.follow)

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopping:
            self.step()

    def stop(self) -> None:
        """From any thread: end `run` soon. The plane stays as it is."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Once `run` has ended: let go of everything, and leave the plane as it is."""
        os.close(self._wake)
        self._view.close()
        self.plane.close()

    def _try(self, what: Callable[[], None]) -> None:
        try:
            what()
            self.problem = None
        except (TrimtabError, OSError) as error:  # of what was there a moment ago
            self._believed = None
            self.counts.failures += 1
            self.problem = str(error)

    def _wait(self, seconds: float) -> bool:
        """Whether messages came before the time was over."""
        waiting = select.poll()
        for descriptor in (self._view.fileno(), self._wake):
            waiting.register(descriptor, select.POLLIN)
        return any(descriptor != self._wake for descriptor, _ in waiting.poll(seconds * 1000))

    def _burst(self) -> Heard:
        """What was heard: at once after a silence, else until messages pause: a burst costs little."""
        heard = self._view.heard()
        patience = self._dumped + _PATIENCE + self._last_dump
        while heard and time.monotonic() < patience and self._wait(_QUIET):
            more = self._view.heard()
            heard = Heard(
                heard.entries or more.entries, heard.devices or more.devices, heard.lost + more.lost
            )
        self.counts.lost += heard.lost
        return heard
