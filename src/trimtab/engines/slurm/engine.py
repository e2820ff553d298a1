"""Slurm as an engine: every run is a batch job whose workers start together, driven by Slurm's own commands.

A run's folder must be on a disk that all nodes share. A job has its run's id in its name, so that it is found
again if Trimtab died while submitting it.
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
    TrimtabError,
    home,
    one_line,
)
from trimtab.engines.jobfiles.script import quote
from trimtab.engines.launch import check_launch, signal_number
from trimtab.engines.run_folder import STOPPING, Intent, RunFolder, RunFolders, within
from trimtab.engines.slurm import commands as slurm
from trimtab.engines.slurm.commands import FORGOTTEN, SlurmAwayError, SlurmJob
from trimtab.kernel import SteadyClock, open_untrusted

CLAIM = "claim"
"""The file in which the script writes its job's id before anything else."""

STATUS = "status"
"""The file in which the script writes how the workers ended."""

# The shell around each worker, which waits for it in the foreground, so that signals do not interrupt it.
_WORKER = (
    '> "$0/begun"; '
    "trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
    "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID "
    "MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000)); "
    '"$@"; status=$?; '
    '[ $status = 0 ] || (set -C; echo $status > "$0/failed") 2>/dev/null; '
    f'[ ! -e "$0/{STOPPING}" ] || status=0; '  # else srun would kill the others before their grace ends
    "exit $status"
)

_LOG_PAUSE = 2  # s between two looks at the size of the log
_TRIES, _PAUSE = 150, 2  # s between tries; a restarted controller answers by then

_SCRIPT = """\
#!/bin/bash
# {title}
folder={folder}
if ! (set -C; echo "$SLURM_JOB_ID" > "$folder/{claim}") 2>/dev/null &&
    [ "$(cat "$folder/{claim}")" != "$SLURM_JOB_ID" ]; then
    echo "this run has begun as another job, or $folder cannot be written to on $SLURMD_NODENAME" >&2
    exit 1
fi
unset SLURM_JWT  # a token of the scheduler
worker={worker}
# Keeps about the last {log} bytes of the log: what is before them becomes a hole, or the log begins anew.
while sleep {log_pause}; do
    used=$(stat -c '%b %s' "$folder/output.log") || continue
    drop=$(((${{used#* }} - {log}) / 4096 * 4096))
    if [ "$drop" -gt 0 ] && [ $((${{used% *}} * 512)) -gt $(({log} * 5 / 4)) ]; then
        fallocate --punch-hole --length "$drop" "$folder/output.log" || : > "$folder/output.log"
    fi
done 2>/dev/null &
trimmer=$!
# If the controller does not answer, srun fails before any worker has started: it is tried again.
again=
for try in {{1..{tries}}}; do
    srun $again --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c "$worker" "$folder" {command}
    status=$?
    if [ "$status" = 0 ] || [ -e "$folder/begun" ] || [ -e "$folder/{stopping}" ]; then break; fi
    again=--immediate  # else it would wait long for nodes that have not registered yet
    sleep {pause}
done
{{ kill "$trimmer"; wait "$trimmer"; }} 2>/dev/null
[ ! -s "$folder/failed" ] || status=$(cat "$folder/failed")
echo "$status" > "$folder/{status}"
exit "$status"
"""


def script(launch: Launch, folder: Path) -> str:
    """The batch script: starts all workers and ends with the status of the first that fails.

    `folder` is on a shared disk. A second job of the same run ends at once.
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
        log=int(launch.log),
        log_pause=_LOG_PAUSE,
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
    """Options for workers and accelerators; if nodes hold different numbers, Slurm distributes them."""
    if launch.gpus != int(launch.gpus):
        raise BadInputError(
            f"{launch.gpus:g} accelerators per worker are not possible in Slurm; ask for a whole number"
        )
    gpus = int(launch.gpus)
    counts = {sum(count for name, count in launch.parts if name == node) for node in nodes}
    if len(counts) > 1:
        return [f"--ntasks={launch.workers}", *([f"--gpus-per-task={gpus}"] if gpus else [])]
    (count,) = counts
    return [f"--ntasks-per-node={count}", *([f"--gres=gpu:{count * gpus}"] if gpus else [])]


def _cpus(launch: Launch) -> int:
    return max(1, math.ceil(launch.cpus))


_MOST_CONTENT = 100  # bytes of a file that the script writes
_POLL_INTERVAL = 0.5  # s, while it waits for a job's end
_KILLED_WITHIN = 10.0  # s from a kill of the workers to their job's own end
_ENDS_WITHIN = 120.0  # s from a cancellation to the end, including the site's epilog

# Event and reason for states in which the exit status does not say how the job ended.
_ENDS = {
    FORGOTTEN: ("lost", "Slurm has removed its job; its exit status is unknown"),
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
                f'"slurm://{partition}" is not the address of an engine; write slurm:// or slurm://PARTITION'
            )
        self._partition = partition
        self._runs = RunFolders((place or home() / "engines" / "slurm").absolute())
        self._clock = clock or SteadyClock()

    def nodes(self) -> Sequence[Node]:
        """Nodes of the partition that can be used now."""
        return slurm.nodes(self._partition)

    def launch(self, launch: Launch) -> str:
        """Submit it and return the run's id, which the key determines; a refused launch leaves nothing."""
        with self._runs.alone() as lock:
            run = self._runs.of_key(launch.key)
            if run.read(Intent) is None or self._submission(run) is None:
                self._submit(run, launch, lock)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Refused: Slurm does not change the limits of a job."""
        self._runs.named(run_id)
        if cpus is not None or memory is not None:
            raise BadInputError(
                f"Slurm cannot resize the run {run_id}; stop it, and launch it with other limits"
            )

    def signal(self, run_id: str, name: str) -> None:
        """Send a signal to every process of every worker; Slurm cannot select their first processes."""
        signal_number(name)
        run = self._runs.named(run_id)
        job = self._jobs([run])[run.id]
        if job is None or job.over:
            raise NotFoundError(f"the run {run_id} has ended; {name} cannot be sent to it")
        slurm.send(job.id, name)

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """Run a command as a step of the run's job, on its first node; its exit status.

        None if it has not ended after `timeout` seconds. It gets `environment`, and its output goes to the
        run's log.
        """
        run = self._runs.named(run_id)
        job = self._jobs([run])[run.id]
        if job is None or job.over:
            raise NotFoundError(f'the run {run_id} has ended; "{command[0]}" cannot be run in it')
        output = (f"--output={str(run.log).replace('%', '%%')}", "--open-mode=append")
        return slurm.execute(job.id, output, command, environment, timeout)

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End it: SIGTERM first, SIGKILL after `grace` seconds; a queued job is cancelled at once."""
        run = self._runs.named(run_id)
        with self._runs.alone():  # it may be about to be submitted
            job = self._jobs([run])[run.id]
        if job is None or job.over:
            return
        run.mark_stopping()
        if job.state != "PENDING":
            for name, seconds in (("TERM", grace), ("KILL", _KILLED_WITHIN)):
                slurm.send(job.id, name)
                if within(seconds, lambda: self._is_over(run), _POLL_INTERVAL):
                    return
        slurm.cancel(job.id)
        if not within(_ENDS_WITHIN, lambda: self._is_over(run), _POLL_INTERVAL):
            raise TrimtabError(f"Slurm does not end job {job.id}; see `scontrol show job {job.id}`")

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; one counts as reported once the next is requested.

        Raises while Slurm does not answer; nothing counts as reported then.
        """
        runs = [run for run, _ in self._runs.unfinished()]
        jobs = self._jobs(runs)
        for run in runs:
            job = jobs[run.id]
            if job is not None:
                yield from run.report(self._news(run, job))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that wait or run in Slurm, with their keys; also those of an earlier Trimtab.

        A launch that was interrupted before Slurm had it is removed: it can be launched again.
        """
        with self._runs.alone():
            runs = self._runs.unfinished()
            jobs = self._jobs([run for run, _ in runs])
            for run, _ in runs:
                if jobs[run.id] is None:
                    run.forget()
        return {run.id: intent.key for run, intent in runs if (job := jobs[run.id]) and not job.over}

    def log(self, run_id: str) -> Path:
        """The file with the workers' output; empty while the job is queued."""
        return self._runs.named(run_id).log

    def _submit(self, run: RunFolder, launch: Launch, lock: int) -> None:
        check_launch(launch, [node.name for node in self.nodes()])
        sbatch_options = options(launch, _name(run), self._partition, run.log)
        text = script(launch, run.folder)
        run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
        run.log.touch(mode=0o600)
        try:
            # The next launch waits until sbatch has ended, even if this process is killed.
            job = slurm.submit(sbatch_options, text, launch.environment, holding=(lock,))
        except SlurmAwayError:
            raise  # Slurm may have the job; the next launch of this key finds out
        except TrimtabError:
            run.forget()
            raise
        run.keep(SlurmSubmission(job))

    def _submission(self, run: RunFolder) -> SlurmSubmission | None:
        """The recorded job of a run, or one that Slurm has but was not recorded; None if there is none."""
        submission = run.read(SlurmSubmission)
        if submission is None and (job := self._jobs([run])[run.id]) is not None:
            submission = SlurmSubmission(job.id)
            run.keep(submission)
        return submission

    def _jobs(self, runs: Sequence[RunFolder]) -> dict[str, SlurmJob | None]:
        """The job of each run; None if Slurm never had one."""
        jobs = slurm.jobs([_name(run) for run in runs])
        return {run.id: _job_of(run, [job for job in jobs if job.name == _name(run)]) for run in runs}

    def _is_over(self, run: RunFolder) -> bool:
        job = self._jobs([run])[run.id]
        return job is None or job.over

    def _news(self, run: RunFolder, job: SlurmJob) -> Iterator[EngineEvent]:
        now = self._clock.now()
        started = job.state == "RUNNING" or (run.folder / CLAIM).exists()
        if started and "started" not in run.reported:
            yield EngineEvent(
                run.id, job.start or now, "started", f"job {job.id} on {job.nodes or 'its nodes'}"
            )
        if job.over:
            yield _end_event(run, job, job.end or now)


def _name(run: RunFolder) -> str:
    return f"trimtab-{run.id}"


def _job_of(run: RunFolder, same_name: Sequence[SlurmJob]) -> SlurmJob | None:
    """The recorded job, or the one that claimed the run, else the first; a removed job has ended."""
    submission = run.read(SlurmSubmission)
    number = submission.job if submission else _content(run, CLAIM)
    if not number:
        return min(same_name, key=lambda job: int(job.id), default=None)
    job = next((job for job in same_name if job.id == number), None)
    if job is not None:
        return job
    job = slurm.accounted(number)
    if job is not None and job.over:
        return job
    status = _content(run, STATUS)
    if not status.isdecimal():
        return SlurmJob(number, _name(run), FORGOTTEN, 0, None, None)
    return SlurmJob(number, _name(run), "FAILED" if int(status) else "COMPLETED", int(status), None, None)


def _end_event(run: RunFolder, job: SlurmJob, time: float) -> EngineEvent:
    event, why = _ENDS.get(job.state, ("failed" if job.status else "ended", f"status {job.status}"))
    if run.stopping:
        return EngineEvent(run.id, time, "ended", f"stopped, status {job.status}")
    return EngineEvent(run.id, time, event, why)


def _content(run: RunFolder, name: str) -> str:
    with contextlib.suppress(OSError), open_untrusted(run.folder / name) as file:
        return file.read(_MOST_CONTENT).decode(errors="replace").strip()
    return ""
