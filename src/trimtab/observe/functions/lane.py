"""A lane: a few CPUs on which one application after the other is measured at every size."""

import contextlib
import os
import signal
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.kernel import LimitedGroup, die_with_parent
from trimtab.observe.functions.application import Application
from trimtab.observe.functions.law import Law
from trimtab.observe.functions.measure import Effort, Measurement, RunningFunction, probe, row
from trimtab.observe.functions.segments import Run, Surroundings

# Sizes that need so little CPU together run side by side on one CPU: each still gets its quota in every period.
_SIDE_BY_SIDE = 0.6
# A host so much slower than it usually is, just before or after, was disturbed: measure again.
_DISTURBED = 1.3
_ATTEMPTS = 3


@dataclass(slots=True)
class Lane:
    """Some CPUs, a server's address, and how fast the host was seen here before."""

    cpus: tuple[int, ...]
    server: str
    effort: Effort
    probes: list[float] = field(default_factory=list)

    def measure(self, application: Application, law: Law, sizes: tuple[int, ...]) -> list[Measurement]:
        """A row for every size."""
        with tempfile.TemporaryDirectory(prefix="trimtab-function-") as folder:
            place = Surroundings(Path(folder), self.server)
            invoke = application.prepare(place)
            rows = list[Measurement]()
            for batch in self._batches(law, sizes):
                rows += self._undisturbed(lambda batch=batch: self._batch(application, invoke, place, law, batch))  # type: ignore[misc]
            return rows

    def _batches(self, law: Law, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Which sizes are measured at the same time: small quotas together, everything else alone."""
        if law.crowded:
            return [(size,) for size in sizes]
        together, load = list[int](), 0.0
        for size in sorted(sizes):
            load += law.cpus(size, len(self.cpus))
            if load > _SIDE_BY_SIDE:
                break
            together.append(size)
        alone = [(size,) for size in sizes if size not in together]
        return [tuple(together), *alone] if together else alone

    def _undisturbed(self, attempt: Callable[[], list[Measurement]]) -> list[Measurement]:
        """The first attempt during which the host was about as fast as usual, or else the last."""
        for _ in range(_ATTEMPTS):
            rows = attempt()
            self.probes.append(rows[0].probe_s)
            if rows[0].probe_s < _DISTURBED * statistics.median(self.probes):
                break
        return rows

    def _batch(
        self, application: Application, invoke: Run, place: Surroundings, law: Law, sizes: tuple[int, ...]
    ) -> list[Measurement]:
        os.sched_setaffinity(0, self.cpus)
        hosts = len(self.cpus)
        cpus = frozenset(self.cpus[:1] if len(sizes) > 1 else self.cpus)
        with contextlib.ExitStack() as stack:
            before = min(probe() for _ in range(3))
            neighbours = stack.enter_context(_group())
            groups = [stack.enter_context(_group()) for _ in sizes]
            for size, group in zip(sizes, groups, strict=True):
                law.apply(size, hosts, group, neighbours)
            if law.crowded:
                stack.enter_context(_busy(neighbours, self.cpus))
            running = [RunningFunction(invoke, place, group, cpus, self.effort) for group in groups]
            reports = [function.finish() for function in running]
        speed = max(before, min(probe() for _ in range(3)))
        return [
            row(law, application.name, size, hosts, {**report, "probe_s": speed})
            for size, report in zip(sizes, reports, strict=True)
        ]


@contextlib.contextmanager
def _group() -> Iterator[LimitedGroup]:
    group = LimitedGroup.create()
    try:
        yield group
    finally:
        group.remove()


@contextlib.contextmanager
def _busy(group: LimitedGroup, cpus: tuple[int, ...]) -> Iterator[None]:
    """Neighbours that never rest: one process per CPU, in the group, until the end."""
    pids = list[int]()
    try:
        for cpu in cpus:
            pid = os.fork()
            if pid == 0:
                _spin(group, cpu)
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _spin(group: LimitedGroup, cpu: int) -> None:
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        os.sched_setaffinity(0, {cpu})
        group.add(os.getpid())
        while True:
            sum(range(10_000))
    finally:
        os._exit(1)
