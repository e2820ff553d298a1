"""Slurm as an engine: every run is a batch job whose workers start together, driven by Slurm's own commands.

A run's folder must be visible to all nodes. A job carries its run's id in its name, so that one submitted by
a Trimtab that died at that moment is found again.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trimtab.core import (
    MIB,
    BadInputError,
    Clock,
    EngineEvent,
    Launch,
    Node,
    NotFoundError,
    RealClock,
    TrimtabError,
    home,
    one_line,
)
from trimtab.engines.jobfiles.script import quote
from trimtab.engines.launch import check_launch, signal_number
from trimtab.engines.run_folder import STOPPING, Intent, RunFolder, RunFolders, within
from trimtab.engines.slurm import commands as slurm
from trimtab.engines.slurm.commands import FORGOTTEN, SlurmAwayError, SlurmJob

CLAIM = "claim"
"""The file in which the script writes its job's id before anything else."""

STATUS = "status"
"""The file in which the script writes how the workers ended."""

# The shell around each worker, which waits for it in the foreground: so signals interrupt nothing here.
_WORKER = (
    '> "$0/begun"; '
    "trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
    "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID "
    "MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000)); "
    '"$@"; status=$?; '
    '[ $status = 0 ] || (set -C; echo $status > "$0/failed") 2>/dev/null; '
    f'[ ! -e "$0/{STOPPING}" ] || status=0; '  # else the others would be hurried
    "exit $status"
)

_TRIES, _PAUSE = 150, 2  # s between them: a controller that is started again is there by then

_SCRIPT = """\
#!/bin/bash
# {title}
folder={folder}
if ! (set -C; echo "$SLURM_JOB_ID" > "$folder/{claim}") 2>/dev/null &&
    [ "$(cat "$folder/{claim}")" != "$SLURM_JOB_ID" ]; then
    echo "this run has begun as another job, or $folder cannot be written to on $SLURMD_NODENAME" >&2
    exit 1
fi
worker={worker}
# Where the controller is away just now, srun fails before any worker has begun: it is tried again.
again=
for try in {{1..{tries}}}; do
    srun $again --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c "$worker" "$folder" {command}
    status=$?
    if [ "$status" = 0 ] || [ -e "$folder/begun" ] || [ -e "$folder/{stopping}" ]; then break; fi
    again=--immediate  # else it would wait long for nodes that have not registered yet
    sleep {pause}
done
[ ! -s "$folder/failed" ] || status=$(cat "$folder/failed")
echo "$status" > "$folder/{status}"
exit "$status"
"""


def script(launch: Launch, folder: Path) -> str:
    """Starts all workers and ends with the status of the first that fails; `folder` is on a shared disk.

    A second job of the same run ends at once.
    """
    return _SCRIPT.format(
        title=one_line(launch.workload.name),
        folder=quote(str(folder)),
        claim=CLAIM,
        worker=quote(_WORKER),
        cpus=_cpus(launch),
        command=" ".join(quote(word) for word in launch.workload.command),
        status=STATUS,
        stopping=STOPPING,
        tries=_TRIES,
        pause=_PAUSE,
    )


def options(launch: Launch, name: str, partition: str, log: Path) -> list[str]:
    """Command-line options of sbatch."""
    nodes = sorted({node for node, _ in launch.parts})
    sbatch_options = [
        f"--job-name={name}",
        f"--comment={one_line(launch.key)}",
        f"--output={str(log).replace('%', '%%')}",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        f"--cpus-per-task={_cpus(launch)}",
        *_workers(launch, nodes),
    ]
    if launch.memory:
        sbatch_options.append(f"--mem-per-cpu={math.ceil(launch.memory / _cpus(launch) / MIB)}M")
    if partition:
        sbatch_options.append(f"--partition={partition}")
    return sbatch_options


def _workers(launch: Launch, nodes: list[str]) -> list[str]:
    """How many, and their accelerators. Where nodes hold different numbers, Slurm spreads them as it can."""
    if launch.gpus != int(launch.gpus):
        raise BadInputError(f"Slurm gives whole accelerators; {launch.gpus:g} per worker cannot be")
    gpus = int(launch.gpus)
    counts = {sum(count for name, count in launch.parts if name == node) for node in nodes}
    if len(counts) > 1:
        return [f"--ntasks={launch.workers}", *([f"--gpus-per-task={gpus}"] if gpus else [])]
    (count,) = counts
    return [f"--ntasks-per-node={count}", *([f"--gres=gpu:{count * gpus}"] if gpus else [])]


def _cpus(launch: Launch) -> int:
    return max(1, math.ceil(launch.cpus))


_ASKS_EVERY = 0.5  # s, while it waits for a job's end
_KILLED_WITHIN = 10.0  # s from a kill of the workers to their job's own end
_ENDS_WITHIN = 120.0  # s from a cancellation to the end, with whatever the site does at the end of jobs

# How it ended where the job's own status does not say it: what to tell, and why.
_ENDS = {
    FORGOTTEN: ("lost", "Slurm has forgotten it; how it ended is not known"),
    "NODE_FAIL": ("lost", "its node failed"),
    "BOOT_FAIL": ("lost", "its node did not start"),
    "PREEMPTED": ("lost", "Slurm gave its place to another job"),
    "REVOKED": ("lost", "Slurm runs it on another cluster"),
    "TIMEOUT": ("failed", "Slurm's time limit was reached"),
    "DEADLINE": ("failed", "Slurm's deadline was reached"),
    "OUT_OF_MEMORY": ("failed", "out of memory"),
    "CANCELLED": ("failed", "cancelled in Slurm, not by Trimtab"),
}


@dataclass(frozen=True, slots=True)
class SlurmSubmission:
    """The id of a run's job in Slurm."""

    FILE: ClassVar[str] = "submission"
    job: str


class SlurmEngine:
    """Runs gangs as jobs of a Slurm cluster, in one partition ("" for Slurm's default)."""

    def __init__(self, partition: str = "", place: Path | None = None, clock: Clock | None = None) -> None:
        if partition.strip("/") != partition or any(c in partition for c in " ,=?"):
            raise BadInputError(
                f'after slurm:// comes the name of a partition, or nothing, not "{partition}"'
            )
        self._partition = partition
        self._kept = RunFolders((place or home() / "engines" / "slurm").absolute())
        self._clock = clock or RealClock()

    def nodes(self) -> Sequence[Node]:
        """Nodes of the partition that can be used now."""
        return slurm.nodes(self._partition)

    def launch(self, launch: Launch) -> str:
        """Submit it; the run's id, the same one for the same key. What is refused leaves nothing behind."""
        with self._kept.alone() as lock:
            run = self._kept.of_key(launch.key)
            if run.read(Intent) is None or self._submission(run) is None:
                self._submit(run, launch, lock)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Slurm does not: a job keeps what it was submitted with."""
        self._kept.named(run_id)
        if cpus is not None or memory is not None:
            raise BadInputError(
                "Slurm does not change what a job has; stop it, and launch it with the new limits"
            )

    def signal(self, run_id: str, name: str) -> None:
        """Send it to every process of every worker: Slurm does not tell them from what they have started."""
        signal_number(name)
        run = self._kept.named(run_id)
        job = self._jobs([run])[run.id]
        if job is None or job.over:
            raise NotFoundError(f"the run {run_id} has ended; nobody is there to hear {name}")
        slurm.send(job.id, name)

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End it: asked first, killed after `grace` seconds; one that waits leaves the queue at once."""
        run = self._kept.named(run_id)
        with self._kept.alone():  # it may be about to be submitted
            job = self._jobs([run])[run.id]
        if job is None or job.over:
            return
        run.mark_stopping()
        if job.state != "PENDING":
            for name, seconds in (("TERM", grace), ("KILL", _KILLED_WITHIN)):
                slurm.send(job.id, name)
                if within(seconds, lambda: self._is_over(run), _ASKS_EVERY):
                    return
        slurm.cancel(job.id)
        if not within(_ENDS_WITHIN, lambda: self._is_over(run), _ASKS_EVERY):
            raise TrimtabError(f"Slurm does not end job {job.id}; see `scontrol show job {job.id}`")

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; one counts as reported once the next is requested.

        Raises while Slurm does not answer; nothing counts as reported then.
        """
        runs = [run for run, _ in self._kept.unfinished()]
        found = self._jobs(runs)
        for run in runs:
            job = found[run.id]
            if job is not None:
                yield from run.report(self._news(run, job))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that wait or run in Slurm, with their keys; also those of an earlier Trimtab.

        A launch that was broken off before Slurm had it is cleared away: it can be launched again.
        """
        with self._kept.alone():
            runs = self._kept.unfinished()
            found = self._jobs([run for run, _ in runs])
            for run, _ in runs:
                if found[run.id] is None:
                    run.forget()
        return {run.id: intent.key for run, intent in runs if (job := found[run.id]) and not job.over}

    def log(self, run_id: str) -> Path:
        """The file with what all workers have written; empty while the job waits."""
        return self._kept.named(run_id).log

    def _submit(self, run: RunFolder, launch: Launch, lock: int) -> None:
        check_launch(launch, [node.name for node in self.nodes()])
        sbatch_options = options(launch, _name(run), self._partition, run.log)
        text = script(launch, run.folder)
        run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
        run.log.touch(mode=0o600)
        try:
            # Who comes next waits for sbatch's end, also where we are killed: then Slurm has it or has not.
            job = slurm.submit(sbatch_options, text, launch.environment, holding=(lock,))
        except SlurmAwayError:
            raise  # it may have it nevertheless; the next launch of this key finds out
        except TrimtabError:
            run.forget()
            raise
        run.keep(SlurmSubmission(job))

    def _submission(self, run: RunFolder) -> SlurmSubmission | None:
        """The job of a run that is about to be submitted, or was; None where Slurm does not have it."""
        noted = run.read(SlurmSubmission)
        if noted is None and (job := self._jobs([run])[run.id]) is not None:
            noted = SlurmSubmission(job.id)
            run.keep(noted)
        return noted

    def _jobs(self, runs: Sequence[RunFolder]) -> dict[str, SlurmJob | None]:
        """The job of each run as far as anyone knows it; None where it never got to Slurm."""
        found = slurm.jobs([_name(run) for run in runs])
        return {run.id: _job_of(run, [job for job in found if job.name == _name(run)]) for run in runs}

    def _is_over(self, run: RunFolder) -> bool:
        job = self._jobs([run])[run.id]
        return job is None or job.over

    def _news(self, run: RunFolder, job: SlurmJob) -> Iterator[EngineEvent]:
        now = self._clock.now()
        begun = job.state == "RUNNING" or (run.folder / CLAIM).exists()
        if begun and "started" not in run.reported:
            yield EngineEvent(
                run.id, job.start or now, "started", f"job {job.id} on {job.nodes or 'its nodes'}"
            )
        if job.over:
            yield _end_event(run, job, job.end or now)


def _name(run: RunFolder) -> str:
    return f"trimtab-{run.id}"


def _job_of(run: RunFolder, same_name: Sequence[SlurmJob]) -> SlurmJob | None:
    """The one that was noted down or has begun; of several, the first. What Slurm forgot has ended."""
    submission = run.read(SlurmSubmission)
    number = submission.job if submission else _noted(run, CLAIM)
    if not number:
        return min(same_name, key=lambda job: int(job.id), default=None)
    known = next((job for job in same_name if job.id == number), None)
    if known is not None:
        return known
    accounted = slurm.remembered(number)
    if accounted is not None and accounted.over:
        return accounted
    status = _noted(run, STATUS)
    if not status.isdecimal():
        return SlurmJob(number, _name(run), FORGOTTEN, 0, None, None)
    return SlurmJob(number, _name(run), "FAILED" if int(status) else "COMPLETED", int(status), None, None)


def _end_event(run: RunFolder, job: SlurmJob, time: float) -> EngineEvent:
    what, why = _ENDS.get(job.state, ("failed" if job.status else "ended", f"status {job.status}"))
    if run.stopping:
        return EngineEvent(run.id, time, "ended", f"stopped, status {job.status}")
    return EngineEvent(run.id, time, what, why)


def _noted(run: RunFolder, name: str) -> str:
    with contextlib.suppress(OSError):
        return (run.folder / name).read_text().strip()
    return ""
