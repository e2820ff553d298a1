"""Slurm's own commands: what is asked of them, and what they answer."""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.core import MIB, BadInputError, MissingDependencyError, Node, TrimtabError, without_secrets

_ANSWERS_WITHIN = 120.0  # s; Slurm's commands give up by themselves long before
# What commands say when the fault is not in what was asked.
_AWAY = re.compile(
    r"contact|connect|timed out|timeout|transmitted|controller|standby|communication|temporarily|"
    r"socket|credential|munge|authentication|configuration source",
    re.IGNORECASE,
)
# Settings of the job that Trimtab may itself run in, and of other users of these commands.
_NOT_OURS = re.compile(r"(SLURM|SBATCH|SQUEUE|SINFO|SCANCEL|SACCT)_(?!CONF$|JWT$)")
_THERE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
FORGOTTEN = "FORGOTTEN"
"""The state of a job that Slurm once had and knows nothing of any more; Slurm has no word for it."""

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
    """Slurm does not answer. What runs goes on; nothing is known to have ended."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm shows it; `status` as a shell gives it, times since the epoch where they are known."""

    id: str
    name: str
    state: str
    status: int
    start: float | None
    end: float | None
    nodes: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in _OVER


def nodes(partition: str) -> list[Node]:
    """Nodes that can be used now, each once."""
    where = [f"--partition={partition}"] if partition else []
    lines = run("sinfo", "--noheader", "--Node", "--format=%N|%c|%m|%f|%G|%T", *where).splitlines()
    found = {line.partition("|")[0]: line.split("|") for line in lines}
    return [_node(*fields[:5]) for fields in found.values() if _is_there(fields[5])]


def jobs(names: Sequence[str]) -> list[SlurmJob]:
    """Jobs with these names, also ended ones as long as the controller remembers them."""
    if not names:
        return []
    wanted = f"--name={','.join(names)}"
    text = run("squeue", "--noheader", "--states=all", wanted, f"--Format={_JOB_FIELDS}")
    return [_job([field.strip() for field in line.split("|")]) for line in text.splitlines()]


def remembered(job_id: str) -> SlurmJob | None:
    """A job that the controller has forgotten, from the accounts, where there are any."""
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
    """A new job's id. File descriptors in `holding` stay open until the controller has answered."""
    answer = run("sbatch", "--parsable", *options, stdin=script, more=environment, holding=holding)
    return answer.strip().partition(";")[0]


def send(job_id: str, signal_name: str) -> None:
    """A signal to all processes of the job's workers, which are its first step.

    Sent to the job instead, TERM and KILL would make Slurm end it in its own time.
    """
    name = signal_name.removeprefix("SIG")
    with contextlib.suppress(BadInputError):  # it has ended, or not yet begun
        run("scancel", f"--signal={name}", f"{job_id}.0")


def cancel(job_id: str) -> None:
    """Take it from the queue, or end it."""
    with contextlib.suppress(BadInputError):
        run("scancel", job_id)


def run(
    *command: str, stdin: str = "", more: Mapping[str, str] | None = None, holding: Sequence[int] = ()
) -> str:
    """Standard output of a command; raises with its error message if it fails."""
    around = without_secrets(os.environ)  # a job inherits what sbatch has
    environment = {name: value for name, value in around.items() if not _NOT_OURS.match(name)}
    try:
        done = subprocess.run(
            command,
            input=stdin,
            env={**environment, **(more or {}), "SLURM_TIME_FORMAT": "%s"},
            pass_fds=holding,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN,
            check=False,
        )
    except FileNotFoundError:
        raise MissingDependencyError(
            f'there is no command "{command[0]}" here; install Slurm\'s client commands'
        ) from None
    except subprocess.TimeoutExpired:
        raise _away(f"{command[0]} took more than {_ANSWERS_WITHIN:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    complaint = _complaint(done.stderr) or f"{command[0]} ended with status {done.returncode}"
    if _AWAY.search(complaint):
        raise _away(complaint)
    raise BadInputError(f"Slurm refuses: {complaint}")


def _away(complaint: str) -> SlurmAwayError:
    return SlurmAwayError(
        f"Slurm does not answer ({complaint}); what runs goes on, try again when it is back"
    )


def _complaint(errors: str) -> str:
    """The last line, without who says it: "sbatch: error: Batch job submission failed: Invalid node name"."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error|fatal): ", "", lines[-1]) if lines else ""


def _is_there(state: str) -> bool:
    """sinfo's state, such as "idle", "mixed-", "allocated+", "down*"; a star is one that does not answer."""
    return not state.endswith("*") and state.rstrip("~#!%$@^+-") in _THERE


def _node(name: str, cpus: str, megabytes: str, features: str, gres: str) -> Node:
    known = [] if features == "(null)" else features.split(",")
    kind, count = _accelerators(gres)
    zone = next((feature for feature in known if feature.startswith("zone-")), "")
    if count and not kind:
        kind = next((feature for feature in known if feature != zone), "gpu")
    return Node(name, float(cpus.rstrip("+")), float(megabytes.rstrip("+")) * MIB, kind, count, zone)


def _accelerators(gres: str) -> tuple[str, int]:
    """Kind and number from "gpu:a100:4(S:0-1),gpu:t4:2,lustre:1": of several kinds the most numerous."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,()]+))??(?::(\d+))?(?=[,(]|$)", gres)
    return max(((kind, int(count or 1)) for kind, count in found), key=lambda each: each[1], default=("", 0))


def _job(fields: Sequence[str]) -> SlurmJob:
    number, name, state, raw, start, end, where = fields[:7]
    code = os.waitstatus_to_exitcode(int(raw))
    status = 128 - code if code < 0 else code
    return SlurmJob(number, name, state, status, _time(start), _time(end), where)


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
