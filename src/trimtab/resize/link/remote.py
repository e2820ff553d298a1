"""The agent of a node under a remote controller: it samples, reports and sets the limits it is ordered to.

It manages containers only while the controller answers: what counts is when the last acknowledged message was
sent, by the monotonic clock. When that is too long ago, because the controller has ended, hangs or cannot be
reached, safe limits and the kernel's OOM killer are restored, and nothing is managed until the controller
answers again.
"""

import asyncio
import contextlib
import logging
import math
import os
import random
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.core import Clock, RealClock, TrimtabError, one_line
from trimtab.kernel import Hierarchy, mounted
from trimtab.resize.agent import Finder, ManagedNode, restore_former_limits
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.link.client import ControllerStream
from trimtab.resize.link.joining import Membership
from trimtab.resize.link.wire import (
    ROW,
    Join,
    MemoryConfirmation,
    MemoryGrant,
    MemoryRequest,
    Orders,
    Report,
    Rows,
    Welcome,
    WireError,
    limits,
)
from trimtab.resize.member import PERIOD, ManagedContainer

REPORT_AFTER = 0.4 * PERIOD  # s after orders: late enough to show their effect, early enough for the next
_TRAP_LOOK = 0.1  # s within which the memory thread notices that it should end
_SOON, _LATEST = 0.1, 2.0  # s until the next attempt to connect, at first and at most
_IN_CHARGE = 0.3  # s, at most while containers are managed

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ReportedContainers:
    """Containers reported to the controller on one stream, and the first message with each."""

    stream: ControllerStream
    patience: float  # s
    members: dict[int, ManagedContainer] = field(default_factory=dict)  # by slot
    requested: set[int] = field(default_factory=set)  # slots of paused containers
    _since: dict[int, int] = field(default_factory=dict)  # first report, by slot
    _throttles: dict[int, int] = field(default_factory=dict)  # of the last report, by slot

    def report(self, managed: ManagedNode, seconds: float) -> Report:
        """The next report, to be sent at once: joins and leaves since the last one, and all containers."""
        present = {member.slot: member for member in managed.node.members.values()}
        left = sorted(slot for slot, member in self.members.items() if present.get(slot) is not member)
        new = sorted(slot for slot, member in present.items() if self.members.get(slot) is not member)
        for slot in left:
            self.requested.discard(slot)
        number = self.stream.messages.sent + 1
        for slot in new:
            self._since[slot] = number
            self._throttles[slot] = present[slot].throttles
        self.members = present
        joins = tuple(
            Join(slot, present[slot].pool, one_line(present[slot].container.cgroup)) for slot in new
        )
        return Report(seconds, self._rows(managed), joins, np.array(left, dtype="<u4"))

    def valid(self, rows: Rows, managed: ManagedNode) -> SlotLimits:
        """Limits of containers that the controller knew when it sent this order, and that still exist.

        A slot may be another container's by now: an order that was in flight meanwhile is not for that one.
        """
        acknowledged = self.stream.messages.acknowledged
        present = {member.slot: member for member in managed.node.members.values()} if len(rows) else {}
        chosen = [
            at
            for at, slot in enumerate(rows["slot"].tolist())
            if slot in present
            and present[slot] is self.members.get(slot)
            and self._since[slot] <= acknowledged
        ]
        return SlotLimits(rows["slot"][chosen].astype(np.intp), rows["value"][chosen])

    def _rows(self, managed: ManagedNode) -> Rows:
        slots = managed.controller.slots
        rows = np.empty(len(slots), ROW)
        rows["slot"] = slots
        for name in ("used", "cpus", "memory", "memory_used"):
            rows[name] = managed.controller.column(name)
        counts = [self.members[slot].throttles for slot in slots.tolist()]
        rows["throttled"] = np.array(counts) - [self._throttles[slot] for slot in slots.tolist()]
        self._throttles.update(zip(slots.tolist(), counts, strict=True))
        return rows


class RemoteAgent:
    """A node that has joined a controller."""

    def __init__(
        self,
        membership: Membership,
        hierarchy: Hierarchy | None = None,
        finder: Finder | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.late = 0  # periods that began after the next one was due
        self._membership = membership
        self._hierarchy, self._finder = hierarchy or mounted(), finder
        if self._hierarchy is None:
            raise TrimtabError("no control groups are mounted on this machine; no container can be sized")
        restore_former_limits()
        self._clock = clock or RealClock()
        self._idle = Controller(())
        self._managed: ManagedNode | None = None  # None while no controller answers
        self._watcher: _TrapWatcher | None = None
        self._reported: ReportedContainers | None = None  # None while no stream is open
        self._listening: asyncio.Task[None] | None = None
        self._until = -math.inf  # monotonic, s: end of management without an answer
        self._requesting: dict[int, ManagedContainer] = {}  # paused containers by slot
        self._ordered = asyncio.Event()
        self._ended = threading.Event()
        self._looked: float | None = None
        self._sending: set[asyncio.Task[None]] = set()  # messages being sent
        self._logged: set[str] = set()

    @property
    def members(self) -> list[ManagedContainer]:
        """Containers under management now."""
        with self.lock:
            return list(self._managed.node.members.values()) if self._managed else []

    @property
    def unmanaged(self) -> dict[str, str]:
        """Reasons why groups cannot be managed, by path."""
        with self.lock:
            return self._managed.node.unmanaged if self._managed else {}

    @property
    def processes(self) -> dict[str, list[int]]:
        """Process ids of the agent and of its dead-man switches."""
        with self.lock:
            return self._managed.processes if self._managed else {"agent": [os.getpid()], "switches": []}

    @property
    def controller(self) -> Controller:
        """Limits in force on this node."""
        return self._managed.controller if self._managed else self._idle

    def run(self, seconds: float | None = None) -> None:
        """Work until `stop`, or for so many seconds; then restore safe limits."""
        asyncio.run(self._run(math.inf if seconds is None else seconds))

    def stop(self) -> None:
        """End `run` at the next period."""
        self._ended.set()

    async def _run(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        talking = asyncio.create_task(self._stay_connected())
        try:
            while not (self._ended.is_set() or talking.done()) and self._clock.monotonic() < end:
                self._step()
                await self._pause()
        finally:
            self._release()
            talking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await talking

    async def _pause(self) -> None:
        """Wait until shortly after the next orders, or for a period if none come."""
        try:
            async with asyncio.timeout(PERIOD):
                await self._ordered.wait()
        except TimeoutError:
            return
        self._ordered.clear()
        await asyncio.sleep(REPORT_AFTER)

    def _step(self) -> None:
        """Sample and report; or restore safe limits when the controller was silent for too long."""
        if self._managed is None:
            return
        now = self._clock.monotonic()
        if now > self._until:
            self._warn_once(
                "the controller was silent for too long; all containers have their safe limits again"
            )
            self._release()
            if self._listening is not None:
                self._listening.cancel()
            return
        self.late += max(0, int((now - (self._looked or now)) / PERIOD) - 1)
        self._looked = now
        with self.lock:
            seconds, _ = self._managed.look()
            self._managed.node.sample_memory()
            if self._reported is not None and not self._sending:  # do not wait for a stuck stream
                self._send_soon(self._reported.stream.send(self._reported.report(self._managed, seconds)))
        for slot in list(self._requesting):
            self._request_memory(slot)

    async def _stay_connected(self) -> None:
        """Connect to the controller, again whenever the stream breaks, and apply its orders."""
        wait = _SOON
        while True:
            try:
                async with ControllerStream(self._membership) as stream:
                    self._begin(await stream.greet(), stream)
                    wait = _SOON
                    self._listening = asyncio.create_task(self._listen(stream))
                    await asyncio.wait([self._listening])
                    if not self._listening.cancelled():
                        self._listening.result()
            except TrimtabError as error:
                self._warn_once(str(error))
            finally:
                self._reported = None
                if self._listening is not None:
                    self._listening.cancel()
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, _IN_CHARGE if self._managed else _LATEST)

    def _begin(self, welcome: Welcome, stream: ControllerStream) -> None:
        """Register with the managed containers, or none after a long silence or with other pools."""
        pools = self._managed.controller.pools if self._managed else ()
        if pools != welcome.pools or self._clock.monotonic() > self._until:
            self._release()
            controller = Controller(welcome.pools)
            managed = ManagedNode(controller, self._hierarchy, self._finder, self._clock, self.lock)
            managed.watch()
            self._watcher = _TrapWatcher(managed, self._trapped, self.stop)
            self._managed = managed
        self._reported = ReportedContainers(stream, welcome.patience)
        self._until = stream.answered + welcome.patience
        self._logged.clear()
        self._ordered.set()
        log.info("under the controller at %s as %s", self._membership.address, self._membership.node)

    async def _listen(self, stream: ControllerStream) -> None:
        """Apply orders until the stream breaks; skip those that come too late."""
        while True:
            message = await stream.receive()
            reported = self._reported
            if reported is None or self._managed is None:
                return
            self._until = stream.answered + reported.patience
            if self._clock.monotonic() > self._until:
                continue
            if isinstance(message, Orders):
                self._apply_orders(message, reported, self._managed)
            elif isinstance(message, MemoryGrant):
                self._take_grant(message, reported, self._managed)
            else:
                raise WireError(f"a controller sends no {type(message).__name__}")

    def _apply_orders(self, orders: Orders, reported: ReportedContainers, managed: ManagedNode) -> None:
        """Takes before gives; urgent ones are confirmed at once."""
        with self.lock:
            managed.set_cpus(_lower(reported.valid(orders.cpu_takes, managed), managed, "cpus"))
            managed.set_cpus(reported.valid(orders.cpu_gives, managed))
            takes = reported.valid(orders.memory_takes, managed)
            managed.set_memory(_lower(takes, managed, "memory"))
            managed.set_first_memory(_bare(reported.valid(orders.memory_gives, managed), managed))
            if orders.urgent:
                present = np.intersect1d(takes.slots, managed.controller.slots)
                in_force = limits(present, [managed.of(int(slot), "memory") for slot in present])
                self._send_soon(reported.stream.send(MemoryConfirmation(in_force)))
        if not orders.urgent:
            self._ordered.set()

    def _take_grant(self, grant: MemoryGrant, reported: ReportedContainers, managed: ManagedNode) -> None:
        """Set the container's new limit, or let the kernel kill."""
        reported.requested.discard(grant.slot)
        with self.lock:
            member = self._requesting.pop(grant.slot, None)
            if member is None or managed.node.members.get(member.container.cgroup) is not member:
                return
            granted = np.array([grant.memory] if grant.memory else [], dtype=float)
            if len(managed.set_memory(SlotLimits(np.full(len(granted), member.slot), granted))):
                member.traps += 1
            else:
                member.refusals += 1
                managed.node.let_kill(member)

    def _trapped(self, member: ManagedContainer) -> None:
        """A container is paused."""
        self._requesting[member.slot] = member
        self._request_memory(member.slot)

    def _request_memory(self, slot: int) -> None:
        """Ask for memory, once per stream, as soon as the container has been reported."""
        with self.lock:
            reported, managed, member = self._reported, self._managed, self._requesting[slot]
            if managed is None or managed.node.members.get(member.container.cgroup) is not member:
                del self._requesting[slot]
            elif (
                reported is not None
                and reported.members.get(slot) is member
                and slot not in reported.requested
            ):
                reported.requested.add(slot)
                self._send_soon(reported.stream.send(MemoryRequest(slot, managed.of(slot, "memory"))))

    def _send_soon(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send in the background; a broken stream is noticed by the receiver."""

        async def send() -> None:
            with contextlib.suppress(TrimtabError):
                await sending

        task = asyncio.create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _release(self) -> None:
        """Restore safe limits, and manage nothing."""
        with self.lock:
            watcher, managed = self._watcher, self._managed
            self._managed = self._watcher = self._reported = None
            self._requesting.clear()
            self._looked = None
        if watcher is not None:
            watcher.end()
        if managed is not None:
            managed.close()

    def _warn_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.warning(message)


class _TrapWatcher:
    """A thread that waits for containers to run out of memory, and calls back in the event loop."""

    def __init__(
        self, managed: ManagedNode, trapped: Callable[[ManagedContainer], None], fails: Callable[[], None]
    ) -> None:
        self._managed = managed
        self._trapped, self._fails = trapped, fails
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        """If this fails, paused containers would sleep for ever, so the agent ends and restores limits."""
        try:
            while not self._ended.is_set():
                for member in self._managed.node.trapped(_TRAP_LOOK):
                    self._loop.call_soon_threadsafe(self._trapped, member)
        except Exception:
            log.exception("memory can no longer be granted; the agent ends and restores safe limits")
            self._fails()


def _lower(takes: SlotLimits, managed: ManagedNode, column: str) -> SlotLimits:
    """Takes that lower a limit: an earlier take, not yet reported when this was ordered, may be lower."""
    now = [managed.of(int(slot), column) for slot in takes.slots]
    less = takes.values < np.array(now, dtype=float)
    return SlotLimits(takes.slots[less], takes.values[less])


def _bare(gives: SlotLimits, managed: ManagedNode) -> SlotLimits:
    """First limits of containers without one; an earlier order may have been in flight meanwhile."""
    bare = np.array([managed.of(int(slot), "memory") == 0 for slot in gives.slots], dtype=bool)
    return SlotLimits(gives.slots[bare], gives.values[bare])
