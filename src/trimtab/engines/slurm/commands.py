"""Calls of Slurm's own commands, and parsing of their output."""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.core import MIB, BadInputError, MissingDependencyError, Node, TrimtabError, inherited

_ANSWERS_WITHIN = 120.0  # s; Slurm's commands give up by themselves long before
# Errors that mean that Slurm is not reachable, not that it refuses.
_AWAY = re.compile(
    r"contact|connect|timed out|timeout|transmitted|controller|standby|communication|temporarily|"
    r"socket|credential|munge|authentication|configuration source",
    re.IGNORECASE,
)
_OWN_SETTINGS = ("SLURM_CONF", "SLURM_JWT")  # of these commands; the script of a job unsets SLURM_JWT
_USABLE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
FORGOTTEN = "FORGOTTEN"
"""The state of a job that Slurm had and has removed; not a state of Slurm's own."""

_OVER = {
    FORGOTTEN,
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
_JOB_FIELDS = "JobID:20|,Name:64|,State:20|,exit_code:12|,StartTime:24|,EndTime:24|,NodeList:512|"


class SlurmAwayError(TrimtabError):
    """Slurm does not answer. Jobs may go on; none counts as ended."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm reports it; `status` as a shell gives it, times in seconds since the epoch."""

    id: str
    name: str
    state: str
    status: int
    start: float | None
    end: float | None
    nodes: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in _OVER


def nodes(partition: str) -> list[Node]:
    """Nodes that are usable now; a node of several partitions is listed once."""
    where = [f"--partition={partition}"] if partition else []
    lines = run("sinfo", "--noheader", "--Node", "--format=%N|%c|%m|%f|%G|%T", *where).splitlines()
    nodes = {line.partition("|")[0]: line.split("|") for line in lines}
    return [_node(*fields[:5]) for fields in nodes.values() if _is_usable(fields[5])]


def jobs(names: Sequence[str]) -> list[SlurmJob]:
    """Jobs with these names, also ended ones as long as the controller remembers them."""
    if not names:
        return []
    selected = f"--name={','.join(names)}"
    text = run("squeue", "--noheader", "--states=all", selected, f"--Format={_JOB_FIELDS}")
    return [_job([field.strip() for field in line.split("|")]) for line in text.splitlines()]


def accounted(job_id: str) -> SlurmJob | None:
    """A job from Slurm's accounting, for one that the controller has removed; None without accounting."""
    fields = "--format=JobID,JobName,State,ExitCode,Start,End,NodeList"
    with contextlib.suppress(TrimtabError):
        text = run("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}", fields)
        for line in text.splitlines():
            number, name, state, code, *rest = line.split("|")
            status, _, killed_by = code.partition(":")
            raw = int(killed_by or 0) or int(status) << 8
            return _job([number, name, state.partition(" ")[0], str(raw), *rest])
    return None


def submit(
    options: Sequence[str], script: str, environment: Mapping[str, str], holding: Sequence[int] = ()
) -> str:
    """Submit a job; returns its id. File descriptors in `holding` stay open until the controller answers."""
    answer = run("sbatch", "--parsable", *options, stdin=script, more=environment, holding=holding)
    return answer.strip().partition(";")[0]


def send(job_id: str, signal_name: str) -> None:
    """Send a signal to all processes of the job's workers, which are its first step.

    Sent to the job instead, TERM and KILL would make Slurm end it with its own timing.
    """
    name = signal_name.removeprefix("SIG")
    with contextlib.suppress(BadInputError):  # it has ended, or not started
        run("scancel", f"--signal={name}", f"{job_id}.0")


def execute(
    job_id: str,
    options: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
) -> int | None:
    """Run a command as a step of a running job; its exit status, or None after `timeout` seconds."""
    words = ("srun", f"--jobid={job_id}", "--overlap", "--ntasks=1", "--nodes=1", *options, *command)
    try:
        done = _run(words, environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode and done.stderr.startswith("srun: error: Unable to"):
        raise BadInputError(f"Slurm refuses: {_message(done.stderr)}")
    return done.returncode


def cancel(job_id: str) -> None:
    """Remove a job from the queue, or end it."""
    with contextlib.suppress(BadInputError):
        run("scancel", job_id)


def run(
    *command: str, stdin: str = "", more: Mapping[str, str] | None = None, holding: Sequence[int] = ()
) -> str:
    """Standard output of a command; raises with its error message if it fails."""
    try:
        done = _run(command, {**(more or {}), "SLURM_TIME_FORMAT": "%s"}, stdin, holding)
    except subprocess.TimeoutExpired:
        raise _away(f"{command[0]} took more than {_ANSWERS_WITHIN:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    message = _message(done.stderr) or f"{command[0]} ended with status {done.returncode}"
    if _AWAY.search(message):
        raise _away(message)
    raise BadInputError(f"Slurm refuses: {message}")


def _run(
    command: Sequence[str],
    more: Mapping[str, str],
    stdin: str = "",
    holding: Sequence[int] = (),
    timeout: float = _ANSWERS_WITHIN,
) -> "subprocess.CompletedProcess[str]":
    """Run a command of Slurm; jobs and steps inherit its environment."""
    settings = _OWN_SETTINGS[:1] if command[0] == "srun" else _OWN_SETTINGS  # a step inherits srun's, too
    own = {name: os.environ[name] for name in settings if name in os.environ}
    try:
        return subprocess.run(
            command,
            input=stdin,
            env={**inherited(os.environ), **own, **more},
            pass_fds=holding,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        raise MissingDependencyError(
            f'the command "{command[0]}" is not installed; install Slurm\'s client commands'
        ) from None


def _away(message: str) -> SlurmAwayError:
    return SlurmAwayError(f"Slurm does not answer ({message}); running jobs are not changed, try again later")


def _message(errors: str) -> str:
    """The last line without its prefix: "sbatch: error: Batch job submission failed: Invalid node name"."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error|fatal): ", "", lines[-1]) if lines else ""


def _is_usable(state: str) -> bool:
    """From sinfo's state, such as "idle", "mixed-" or "down*"; a star marks a node that does not answer."""
    return not state.endswith("*") and state.rstrip("~#!%$@^+-") in _USABLE


def _node(name: str, cpus: str, megabytes: str, features: str, gres: str) -> Node:
    names = [] if features == "(null)" else features.split(",")
    kind, count = _accelerators(gres)
    zone = next((feature for feature in names if feature.startswith("zone-")), "")
    if count and not kind:
        kind = next((feature for feature in names if feature != zone), "gpu")
    return Node(name, float(cpus.rstrip("+")), float(megabytes.rstrip("+")) * MIB, kind, count, zone)


def _accelerators(gres: str) -> tuple[str, int]:
    """Kind and number from "gpu:a100:4(S:0-1),gpu:t4:2,lustre:1": of several kinds the most numerous."""
    counts = re.findall(r"(?:^|,)gpu(?::([^:,()]+))??(?::(\d+))?(?=[,(]|$)", gres)
    return max(((kind, int(count or 1)) for kind, count in counts), key=lambda pair: pair[1], default=("", 0))


def _job(fields: Sequence[str]) -> SlurmJob:
    number, name, state, raw, start, end, where = fields[:7]
    code = os.waitstatus_to_exitcode(int(raw))
    status = 128 - code if code < 0 else code
    return SlurmJob(number, name, state, status, _time(start), _time(end), where)


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
