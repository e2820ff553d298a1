"""A lane: a few CPUs on which one application after the other is measured, all sizes taking turns."""

import contextlib
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.collect.functions.application import Application
from trimtab.collect.functions.effort import Effort
from trimtab.collect.functions.folder import files_of_functions, own_folder
from trimtab.collect.functions.function import Function, RunningFunction, running
from trimtab.collect.functions.law import Law
from trimtab.collect.functions.measurement import Measurement, statistics_of
from trimtab.collect.functions.neighbours import Neighbours, neighbours_on
from trimtab.collect.functions.segments import Surroundings
from trimtab.kernel import LimitedGroup
from trimtab.observe import HostSpeed

# Sizes that need so little CPU together share a turn on one CPU: each still gets its quota in every period.
_SIDE_BY_SIDE = 0.6
_PATIENCE = 2  # times the effort's ceiling, after which a function is ended in the middle of an invocation


@dataclass(slots=True)
class _Contestant:
    """A size, its function's process, its least turn, and how fast the host was before each of its turns."""

    memory_mb: int
    running: RunningFunction
    least_turn: float  # s
    probes: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lane:
    """Some CPUs, the address of a server to call, and how long to measure."""

    cpus: tuple[int, ...]
    server: str
    effort: Effort

    def measure(self, application: Application, law: Law, sizes: Sequence[int]) -> list[Measurement]:
        """A row for every size."""
        os.sched_setaffinity(0, self.cpus)
        with contextlib.ExitStack() as stack:
            place = Surroundings(stack.enter_context(own_folder()), self.server)
            with files_of_functions():
                invoke = application.prepare(place)
            neighbours = stack.enter_context(neighbours_on(self.cpus)) if law.crowded else None
            batches = list[list[_Contestant]]()
            for batch in self._batches(law, sizes):
                cpus = frozenset(self.cpus[:1] if len(batch) > 1 else self.cpus)
                batches.append([])
                for size in batch:
                    group = stack.enter_context(LimitedGroup.create())
                    law.limit(size, len(self.cpus), group)
                    head_start = law.head_start(size, len(self.cpus))
                    function = Function(invoke, place, group, cpus, head_start, neighbours)
                    least_turn = max(self.effort.turn, law.least_turn(size, len(self.cpus)))
                    batches[-1].append(_Contestant(size, stack.enter_context(running(function)), least_turn))
            host = HostSpeed()
            for contestants in batches:
                self._turn(contestants, law, neighbours, host)
                for contestant in contestants:  # that was the warm-up, which does not count
                    contestant.running.turns.clear()
            while (contestants := min(batches, key=self._progress)) and self._progress(contestants) < 1:
                self._turn(contestants, law, neighbours, host)
            rows = {
                contestant.memory_mb: self._row(application, law, contestant)
                for contestants in batches
                for contestant in contestants
            }
            return [rows[size] for size in sizes]

    def _batches(self, law: Law, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Which sizes take their turns together: small quotas do, everything else is alone."""
        together, load = list[int](), 0.0
        for size in sorted(sizes):
            load += law.cpus(size, len(self.cpus))
            if law.crowded or load > _SIDE_BY_SIDE:
                break
            together.append(size)
        batches = [tuple(together), *((size,) for size in sizes if size not in together)]
        return [batch for batch in batches if batch]

    def _progress(self, contestants: list[_Contestant]) -> float:
        """How far the least of them is."""
        active = [contestant.running for contestant in contestants if not contestant.running.ended]
        return min(
            (self.effort.progress(each.invocations, each.seconds, each.spent) for each in active), default=1.0
        )

    def _turn(
        self, contestants: list[_Contestant], law: Law, neighbours: Neighbours | None, host: HostSpeed
    ) -> None:
        """A turn together: as long as the slowest of them takes to invoke once, or longer."""
        speed = host.probe()
        active = [contestant for contestant in contestants if not contestant.running.ended]
        seconds = max(max(each.least_turn, each.running.usual) for each in active)
        if neighbours:
            law.crowd(active[0].memory_mb, neighbours.group)
        deadline = time.monotonic() + _PATIENCE * self.effort.ceiling
        for contestant in active:
            contestant.running.begin_turn(seconds)
        for contestant in active:
            contestant.running.end_turn(deadline - time.monotonic())
            contestant.probes.append(speed)
        if neighbours:  # also when a function died before it could send them to rest
            neighbours.rest()

    def _row(self, application: Application, law: Law, contestant: _Contestant) -> Measurement:
        running = contestant.running
        enough = running.invocations >= min(self.effort.barely, self.effort.least)
        status = running.ended or ("ok" if enough else "timed-out")
        found = statistics_of(running.turns) if status == "ok" else {}
        return Measurement(
            law.name,
            application.name,
            contestant.memory_mb,
            law.cpus(contestant.memory_mb, len(self.cpus)),
            status,
            running.invocations if status == "ok" else 0,
            memory_peak_bytes=running.group.memory_peak() or 0.0,
            probe_s=statistics.fmean(contestant.probes),
            **found,
        )
