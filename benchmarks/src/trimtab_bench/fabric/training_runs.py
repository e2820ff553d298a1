"""Jobs of `examples/fabric` in a lab: with faults and without, bound to the fabric or to one port."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from trimtab.core import BadInputError, TrimtabError
from trimtab.fabric.lab.faults import Cycle
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric.gloo_jobs.job import Job
from trimtab_bench.fabric.gloo_jobs.ranks import Ranks
from trimtab_bench.fabric.gloo_jobs.run import Meanwhile, Restarted, Run, run_job, run_restarting
from trimtab_bench.fabric.training_measures import Trained
from trimtab_bench.fabric.variants import bind_to_one_port, single_port_addresses

_JOBS = Path(__file__).resolve().parents[4] / "examples" / "fabric"
_WARM = 5  # steps before the first fault
_TRIED = 40  # steps by which a job's pace is known
_READY = 120.0  # s for a lab, also after faults
_START = 60.0  # s that a job may take to start
_TIMES = 5.0  # as long as it should, that a job may take


@dataclass(frozen=True, slots=True)
class Schedule:
    """Faults of `down` seconds, each at the next uplink and `up` seconds after the last one was mended.

    A job is as long as `faults` of them, or has `steps`; a worker that restarts gives up after `patience`.
    """

    down: float
    up: float
    faults: int
    patience: float
    steps: int | None = None

    @property
    def seconds(self) -> float:
        """That a job should take when all is well."""
        return self.faults * (self.down + self.up)


PAPER = Schedule(20.0, 20.0, faults=4, patience=5.0)
SHORT = Schedule(4.0, 4.0, faults=1, patience=3.0, steps=100)


@dataclass(frozen=True, slots=True)
class Kind:
    """A job of `examples/fabric`: its script, its options, and how many steps go through its data once."""

    script: str
    options: tuple[str, ...]
    steps_per_epoch: int

    def job(self, steps: int, *more: str) -> Job:
        """So many steps of it on two hosts, not yet bound to anything."""
        path = _JOBS / self.script
        if not path.exists():
            raise BadInputError(f"there is no {path}; run this bench from a checkout of Trimtab's source")
        return Job((sys.executable, str(path), *self.options, "--steps", str(steps), *more))


RESNET = Kind(
    "pictures_resnet.py",
    ("--width", "16", "--blocks", "1", "--batch-size", "8"),
    steps_per_epoch=50_000 // 16,
)
GPT = Kind(
    "words_gpt.py",
    ("--width", "32", "--layers", "2", "--batch-size", "8", "--small-batches", "4"),
    steps_per_epoch=10_000 // 8,
)
COLLECTIVES = Kind("collectives.py", (), steps_per_epoch=1)


@contextlib.contextmanager
def ready_lab(agents: bool = True) -> Iterator[Lab]:
    """Two hosts that work, with Trimtab's agents or with FRR alone."""
    with Lab() as lab:
        lab.wait_ready(_READY)
        if agents:
            lab.start_agents()
        yield lab


def on_fabric(lab: Lab) -> Callable[[Job], Job]:
    """Binds a job to the virtual device."""
    return lambda job: job.bound_to(lab.hosts[0].host.tenants[0].devices[0])


def on_one_port(lab: Lab) -> Callable[[Job], Job]:
    """Binds a job to the first uplink of both hosts, as one would without a fabric."""
    bind_to_one_port(lab)
    address, device = single_port_addresses(lab)[0], lab.hosts[0].host.uplinks[0].device
    return lambda job: replace(job, address=address, device=device)


def as_long_as(schedule: Schedule, lab: Lab, bind: Callable[[Job], Job], kind: Kind, *options: str) -> Job:
    """The job with as many steps as the schedule asks for, by the pace it has here when all is well."""
    if schedule.steps is not None:
        return bind(kind.job(schedule.steps, *options))
    run = run_job(bind(kind.job(_TRIED, *options)), lab.run, limit=_limit(schedule.seconds))
    if run.failure:
        raise TrimtabError(f"{kind.script} does not run in the lab: {run.failure}")
    steps = max(_TRIED, round(schedule.seconds / median(run.step_seconds[_WARM:])))
    return bind(kind.job(steps, *options))


def train(lab: Lab, job: Job, schedule: Schedule, faults: bool = True) -> Trained:
    """The job to its end; faults begin with its first steps and go on until it ends."""
    with _faults(lab, schedule if faults else None) as (cycle, meanwhile):
        run = run_job(job, lab.run, limit=_limit(schedule.seconds), meanwhile=meanwhile)
    if run.failure and not faults:
        raise TrimtabError(f"without any fault the job {Path(job.words[1]).name} fails: {run.failure}")
    return _trained(run, cycle)


def train_restarting(lab: Lab, job: Job, schedule: Schedule, every: int) -> Trained:
    """The same for a job that gives up soon, and is started again from its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder, _faults(lab, schedule) as (cycle, meanwhile):
        impatient = replace(job, words=(*job.words, "--timeout", f"{schedule.patience:g}"))
        kept = replace(impatient, checkpoint=Path(folder) / "kept", every=every)
        run = run_restarting(kept, lab.run, limit=_limit(schedule.seconds), meanwhile=meanwhile, most=1000)
    return _trained(run, cycle)


def _limit(seconds: float) -> float:
    return _TIMES * seconds + _START


@contextlib.contextmanager
def _faults(lab: Lab, schedule: Schedule | None) -> Iterator[tuple[Cycle | None, Meanwhile | None]]:
    """All is well at the beginning and again at the end."""
    if schedule is None:
        yield None, None
        return
    cycle = lab.cycle("blackhole", schedule.down, schedule.up)

    def begin(ranks: Ranks) -> None:
        if cycle.began is None and ranks.last_step >= _WARM:
            ranks.mark_fault()
            cycle.start()

    try:
        yield cycle, begin
    finally:
        cycle.stop()
    lab.wait_ready(_READY)


def _trained(run: Run | Restarted, cycle: Cycle | None) -> Trained:
    since_epoch = time.time() - time.monotonic()
    ended = run.runs[-1].ended if isinstance(run, Restarted) else run.ended
    began = [each.began + since_epoch for each in cycle.happened] if cycle else []
    return Trained(run, tuple(moment for moment in began if moment < ended))
