"""The agent of a node under a controller elsewhere: it samples, reports and sets the limits it is ordered to.

It answers for its containers only as long as it is answered itself: what counts is when the message was sent
that the controller last heard, by the monotonic clock. When that is too long ago, because the controller is
gone, hangs or cannot be reached, all containers get safe limits and the kernel's OOM killer back, and nothing
is managed until the controller greets again.
"""

import asyncio
import contextlib
import logging
import math
import random
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.core import Clock, RealClock, TrimtabError, one_line
from trimtab.kernel import Hierarchy, mounted
from trimtab.resize.agent import Finder, Keeper
from trimtab.resize.allocation import Array
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.link.client import Line
from trimtab.resize.link.joining import Membership
from trimtab.resize.link.wire import (
    ROW,
    Ask,
    Confirm,
    Join,
    Orders,
    Relief,
    Report,
    Rows,
    Welcome,
    WireError,
    limits,
)
from trimtab.resize.member import PERIOD, Member

REPORT_AFTER = 0.4 * PERIOD  # s after orders: late enough to see what they did, early enough for the next
_TRAP_LOOK = 0.1  # s in which the thread for memory notices that it should end
_SOON, _LATEST = 0.1, 2.0  # s until the next try to reach the controller, at first and in the long run
_IN_CHARGE = 0.3  # s, while containers wait for it

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Told:
    """Who has been reported, and with which message."""

    line: Line
    patience: float  # s
    members: dict[int, Member] = field(default_factory=dict)  # by slot
    asked: set[int] = field(default_factory=set)  # slots of those who stand still
    _since: dict[int, int] = field(default_factory=dict)  # by slot: the number of the first report with it
    _throttles: dict[int, int] = field(default_factory=dict)  # by slot: as they were in the last report

    def report(self, keeper: Keeper, seconds: float) -> Report:
        """The next report, to be said at once: who came and went since the last one, and how all are."""
        there = {member.slot: member for member in keeper.node.members.values()}
        gone = sorted(slot for slot, member in self.members.items() if there.get(slot) is not member)
        new = sorted(slot for slot, member in there.items() if self.members.get(slot) is not member)
        for slot in gone:
            self.asked.discard(slot)
        number = self.line.post.sent + 1
        for slot in new:
            self._since[slot] = number
            self._throttles[slot] = there[slot].throttles
        self.members = there
        joins = tuple(Join(slot, there[slot].pool, one_line(there[slot].container.cgroup)) for slot in new)
        return Report(seconds, self._rows(keeper), joins, np.array(gone, dtype="<u4"))

    def meant(self, rows: Rows, keeper: Keeper) -> Limits:
        """Limits for containers that the controller knew of when it gave this order, and that are still here.

        A slot may be another's by now: an order that was under way meanwhile is not for that one.
        """
        known = self.line.post.acknowledged
        there = {member.slot: member for member in keeper.node.members.values()} if len(rows) else {}
        chosen = [
            at
            for at, slot in enumerate(rows["slot"].tolist())
            if slot in there and there[slot] is self.members.get(slot) and self._since[slot] <= known
        ]
        return Limits(rows["slot"][chosen].astype(np.intp), rows["value"][chosen])

    def _rows(self, keeper: Keeper) -> Rows:
        slots = keeper.controller.slots
        rows = np.empty(len(slots), ROW)
        rows["slot"] = slots
        for name in ("used", "cpus", "memory", "memory_used"):
            rows[name] = keeper.controller.column(name)
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
        self.late = 0  # periods that began when the one after should have
        self._membership = membership
        self._hierarchy, self._finder = hierarchy or mounted(), finder
        if self._hierarchy is None:
            raise TrimtabError("no control groups are mounted on this machine; nothing can be sized")
        self._clock = clock or RealClock()
        self._idle = Controller(())
        self._keeper: Keeper | None = None  # none while nobody answers for us
        self._watcher: _Watcher | None = None
        self._told: Told | None = None  # none while no line is open
        self._listening: asyncio.Task[None] | None = None
        self._until = -math.inf  # monotonic, s: how long we may go on without an answer
        self._asking: dict[int, Member] = {}  # who stands still, by slot
        self._answered = asyncio.Event()
        self._ended = threading.Event()
        self._looked: float | None = None
        self._saying: set[asyncio.Task[None]] = set()  # messages on their way out
        self._said: set[str] = set()

    @property
    def members(self) -> list[Member]:
        """Who is managed now."""
        with self.lock:
            return list(self._keeper.node.members.values()) if self._keeper else []

    @property
    def controller(self) -> Controller:
        """What is in force, as far as this node knows."""
        return self._keeper.controller if self._keeper else self._idle

    def run(self, seconds: float | None = None) -> None:
        """Work until `stop`, or for so long; then leave everyone with safe limits."""
        asyncio.run(self._run(math.inf if seconds is None else seconds))

    def stop(self) -> None:
        """End `run` at the next period."""
        self._ended.set()

    async def _run(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        talking = asyncio.create_task(self._talk())
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
        """Until a while after the next orders, or for a period where none come."""
        try:
            async with asyncio.timeout(PERIOD):
                await self._answered.wait()
        except TimeoutError:
            return
        self._answered.clear()
        await asyncio.sleep(REPORT_AFTER)

    def _step(self) -> None:
        """Look and report; or put everything back, when the controller has been silent for too long."""
        if self._keeper is None:
            return
        now = self._clock.monotonic()
        if now > self._until:
            self._warn(
                "the controller has not been heard of for too long; all containers have safe limits again"
            )
            self._release()
            if self._listening is not None:
                self._listening.cancel()
            return
        self.late += max(0, int((now - (self._looked or now)) / PERIOD) - 1)
        self._looked = now
        with self.lock:
            seconds, _ = self._keeper.look()
            self._keeper.node.sample_memory()
            if self._told is not None and not self._saying:  # nobody waits for a line that is stuck
                self._say(self._told.line.say(self._told.report(self._keeper, seconds)))
        for slot in list(self._asking):
            self._ask(slot)

    async def _talk(self) -> None:
        """Reach the controller, again and again, and do as it says."""
        wait = _SOON
        while True:
            try:
                async with Line(self._membership) as line:
                    self._begin(await line.greet(), line)
                    wait = _SOON
                    self._listening = asyncio.create_task(self._listen(line))
                    await asyncio.wait([self._listening])
                    if not self._listening.cancelled():
                        self._listening.result()
            except TrimtabError as error:
                self._warn(str(error))
            finally:
                self._told = None
                if self._listening is not None:
                    self._listening.cancel()
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, _IN_CHARGE if self._keeper else _LATEST)

    def _begin(self, welcome: Welcome, line: Line) -> None:
        """Register: with everyone we answer for, or anew where that was too long ago or for other pools."""
        known = self._keeper.controller.pools if self._keeper else ()
        if known != welcome.pools or self._clock.monotonic() > self._until:
            self._release()
            book = Controller(welcome.pools)
            keeper = Keeper(book, self._hierarchy, self._finder, self._clock, self.lock)
            keeper.watch()
            self._watcher = _Watcher(keeper, self._trapped, self.stop)
            self._keeper = keeper
        self._told = Told(line, welcome.patience)
        self._until = line.answered + welcome.patience
        self._said.clear()
        self._answered.set()
        log.info("under the controller at %s as %s", self._membership.address, self._membership.node)

    async def _listen(self, line: Line) -> None:
        """Take orders until the line breaks. Those that answer something too old come too late."""
        while True:
            message = await line.hear()
            told = self._told
            if told is None or self._keeper is None:
                return
            self._until = line.answered + told.patience
            if self._clock.monotonic() > self._until:
                continue
            if isinstance(message, Orders):
                self._obey(message, told, self._keeper)
            elif isinstance(message, Relief):
                self._relieve(message, told, self._keeper)
            else:
                raise WireError("controllers do not say that")

    def _obey(self, orders: Orders, told: Told, keeper: Keeper) -> None:
        """Takes before gives; after urgent ones, say at once what is in force."""
        with self.lock:
            keeper.set_cpus(_lower(told.meant(orders.cpu_takes, keeper), keeper, "cpus"))
            keeper.set_cpus(told.meant(orders.cpu_gives, keeper))
            takes = told.meant(orders.memory_takes, keeper)
            keeper.set_memory(_lower(takes, keeper, "memory"))
            keeper.set_first_memory(_bare(told.meant(orders.memory_gives, keeper), keeper))
            if orders.urgent:
                there = np.intersect1d(takes.slots, keeper.controller.slots)
                in_force = limits(there, [keeper.of(int(slot), "memory") for slot in there])
                self._say(told.line.say(Confirm(in_force)))
        if not orders.urgent:
            self._answered.set()

    def _relieve(self, relief: Relief, told: Told, keeper: Keeper) -> None:
        """It gets its memory, or the kernel's killer."""
        told.asked.discard(relief.slot)
        with self.lock:
            member = self._asking.pop(relief.slot, None)
            if member is None or keeper.node.members.get(member.container.cgroup) is not member:
                return
            granted = np.array([relief.memory] if relief.memory else [], dtype=float)
            if len(keeper.set_memory(_limits(member.slot, granted))):
                member.traps += 1
            else:
                member.refusals += 1
                keeper.node.let_kill(member)

    def _trapped(self, member: Member) -> None:
        """A container stands still."""
        self._asking[member.slot] = member
        self._ask(member.slot)

    def _ask(self, slot: int) -> None:
        """Once on every line, as soon as the controller has been told of the container."""
        with self.lock:
            told, keeper, member = self._told, self._keeper, self._asking[slot]
            if keeper is None or keeper.node.members.get(member.container.cgroup) is not member:
                del self._asking[slot]
            elif told is not None and told.members.get(slot) is member and slot not in told.asked:
                told.asked.add(slot)
                self._say(told.line.say(Ask(slot, keeper.of(slot, "memory"))))

    def _say(self, saying: Coroutine[Any, Any, None]) -> None:
        """Send it while other things go on; where the line breaks, whoever listens notices as well."""

        async def say() -> None:
            with contextlib.suppress(TrimtabError):
                await saying

        task = asyncio.create_task(say())
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    def _release(self) -> None:
        """Everyone has safe limits, and nobody is managed."""
        with self.lock:
            watcher, keeper = self._watcher, self._keeper
            self._keeper = self._watcher = self._told = None
            self._asking.clear()
            self._looked = None
        if watcher is not None:
            watcher.end()
        if keeper is not None:
            keeper.close()

    def _warn(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning(sentence)


class _Watcher:
    """A thread that notices when a container runs out of memory, and says so in the loop it was made in."""

    def __init__(self, keeper: Keeper, trapped: Callable[[Member], None], fails: Callable[[], None]) -> None:
        self._keeper = keeper
        self._trapped, self._fails = trapped, fails
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        """Without it trapped containers would sleep for ever: if it fails, the agent ends and frees them."""
        try:
            while not self._ended.is_set():
                for member in self._keeper.node.trapped(_TRAP_LOOK):
                    self._loop.call_soon_threadsafe(self._trapped, member)
        except Exception:
            log.exception("memory can no longer be granted; the agent ends and leaves safe limits")
            self._fails()


def _lower(takes: Limits, keeper: Keeper, what: str) -> Limits:
    """A take never raises a limit that an earlier one, not yet reported when this was ordered, made lower."""
    now = [keeper.of(int(slot), what) for slot in takes.slots]
    less = takes.values < np.array(now, dtype=float)
    return Limits(takes.slots[less], takes.values[less])


def _bare(gives: Limits, keeper: Keeper) -> Limits:
    """A first limit is for whoever has none yet; an order for it may have been under way meanwhile."""
    bare = np.array([keeper.of(int(slot), "memory") == 0 for slot in gives.slots], dtype=bool)
    return Limits(gives.slots[bare], gives.values[bare])


def _limits(slot: int, values: Array) -> Limits:
    """Limits for one container, or none."""
    return Limits(np.full(len(values), slot), values)
