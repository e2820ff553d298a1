"""A Ray cluster as an engine: a run is a Ray job, whose driver leads one actor per worker on the nodes named.

Nothing of Trimtab need be on the cluster: what runs there travels with the job. What is known of runs is kept
in `$TRIMTAB_HOME/engines/ray/HOST_PORT`, and asked of the cluster.
"""

import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.core import (
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
from trimtab.core.units import format_bytes
from trimtab.engines.ray_cluster import RayCluster, RayJob, RayNode
from trimtab.engines.remote_run import RemoteRun, RemoteRuns, check, tell
from trimtab.kernel import write_whole

PATIENCE = 30.0
"""Seconds a run is missing before it counts as lost. Its workers end themselves in two thirds of that."""

_ORDER_WITHIN = 60.0  # s for an order to reach the driver
_ENDS_WITHIN = 20.0  # s from the grace's end to the end of the job
_PAUSE = 0.2  # s between two looks at a job
_STOP_WAIT = "15"  # s from Ray's own stop to the driver's death
_GUEST_FILES = ("ray_gang.py", "ray_holder.py")
_DIED = {"JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", ""}


class RayEngine:
    """Launches, signals, stops and watches gangs on the Ray cluster whose dashboard is at `address`."""

    def __init__(
        self, address: str, place: Path | None = None, clock: Clock | None = None, patience: float = PATIENCE
    ) -> None:
        self._cluster = RayCluster(address)
        folder = re.sub(r"[^\w.-]", "_", address)
        self._runs = RemoteRuns(place or home() / "engines" / "ray" / folder)
        self._clock = clock or RealClock()
        self._patience = patience
        self._missed: dict[str, float] = {}  # since when (monotonic) nobody knows how a run is

    def nodes(self) -> Sequence[Node]:
        """The machines that are alive; the label `accelerator` says which kind of accelerators they have."""
        return [each.node for each in self._cluster.nodes()]

    def launch(self, launch: Launch) -> str:
        """Submit it as a Ray job, unless that has been done for this key; the run's id."""
        check(launch)
        run = self._runs.of(launch.key)
        if not run.has("accepted"):
            places = self._places(launch)
            asked = run.ask(launch, self._clock.now())
            package = self._cluster.upload(_package(asked.secret, places, launch, self._patience * 2 / 3))
            run.mark("package", package)
            stop_wait = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": _STOP_WAIT}}
            self._cluster.submit(run.id, "python ray_gang.py", package, runtime_env=stop_wait)
            run.mark("accepted")
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Ray cannot: what a worker reserves stays as it was launched."""
        self._runs.run(run_id)
        raise BadInputError("Ray cannot resize a worker that runs; stop it, and launch it with other limits")

    def signal(self, run_id: str, name: str) -> None:
        """Send the command of every worker a signal such as "USR1"; arrives within seconds."""
        run = self._runs.run(run_id)
        if f"SIG{name}" not in signal.Signals.__members__:
            raise BadInputError(f'no signal is called "{name}"; one is "USR1"')
        job = self._cluster.job(run_id)
        if job is None or job.over:
            raise NotFoundError(f"the run {run_id} has ended; nobody is there to hear a signal")
        self._order(run, job, {"signal": name})

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End all its workers: asked first, killed after `grace` seconds; returns when the job is over."""
        run = self._runs.run(run_id)
        job = self._cluster.job(run_id)
        if job is None or job.over:
            return
        run.mark("stopping")
        if job.status == "RUNNING":
            self._order(run, job, {"stop": grace})
            if self._over_within(run_id, grace + _ENDS_WITHIN):
                return
        self._cluster.stop(run_id)
        if not self._over_within(run_id, float(_STOP_WAIT) + _ENDS_WITHIN):
            raise TrimtabError(f"the run {run_id} cannot be stopped; see the job in Ray's dashboard")

    def watch(self) -> Iterator[EngineEvent]:
        """What has happened since the last time, oldest run first; does not wait for more."""
        runs = self._runs.unfinished()
        jobs = self._cluster.jobs() if runs else {}
        for run in runs:
            yield from tell(run, self._news(run, jobs.get(run.id)))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab."""
        runs = self._runs.unfinished()
        jobs = self._cluster.jobs() if runs else {}
        going = [run for run in runs if (job := jobs.get(run.id)) is not None and not job.over]
        return {run.id: asked.key for run in going if (asked := run.asked) is not None}

    def log(self, run_id: str) -> Path:
        """The file with what the run has written; fetched now, unless all of it is here."""
        run = self._runs.run(run_id)
        if not run.over and self._cluster.job(run_id) is not None:
            self._fetch(run)
        if not run.log.exists():
            write_whole(run.log, "")
        return run.log

    def _places(self, launch: Launch) -> list[tuple[str, int]]:
        """Ray's ids of the nodes; refuses what they could never hold."""
        there = {each.node.name: each for each in self._cluster.nodes()}
        if launch.gpus > 1 and launch.gpus % 1:
            raise BadInputError(f"Ray gives a worker a share of one GPU or whole ones, not {launch.gpus:g}")
        places = []
        for name, count in launch.parts:
            if name not in there:
                known = ", ".join(sorted(there)) or "none"
                raise NotFoundError(f'this Ray cluster has no node "{name}"; there are {known}')
            _refuse_too_much(there[name], count, launch)
            places.append((there[name].id, count))
        return places

    def _order(self, run: RemoteRun, job: RayJob, order: Mapping[str, Any]) -> None:
        """Leave an order in the driver's folder, by a job of its own on the driver's node."""
        name = f"{time.time_ns()}"
        text = json.dumps(order)
        command = f"mkdir -p orders && echo '{text}' > orders/{name} && mv orders/{name} orders/{name}.json"
        messenger = f"{run.id}-order-{name}-{secrets.token_hex(4)}"
        self._cluster.submit(messenger, command, run.marked("package"), job.node)
        if not self._over_within(messenger, _ORDER_WITHIN):
            self._cluster.stop(messenger)
            raise TrimtabError(f"the run {run.id} cannot be reached on its node now; try again")
        self._cluster.forget(messenger)

    def _over_within(self, job_id: str, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        while (job := self._cluster.job(job_id)) is not None and not job.over:
            if self._clock.monotonic() > until:
                return False
            self._clock.sleep(_PAUSE)
        return True

    def _news(self, run: RemoteRun, job: RayJob | None) -> Iterator[EngineEvent]:
        if job is None:
            if run.has("accepted"):
                yield from self._unless_patient(run, "the cluster does not know it any more")
            return
        if job.status == "PENDING" or (job.status == "RUNNING" and "started" in run.told):
            return
        notes = self._fetch(run)
        for note in notes:
            if note["what"] == "started":
                yield EngineEvent(run.id, note["time"], "started", note["detail"])
        if not job.over:
            return
        end = next((note for note in notes if note["what"] in ("ended", "failed", "lost")), None)
        if run.has("stopping"):
            time_of_end = end["time"] if end else job.end or self._clock.now()
            yield EngineEvent(run.id, time_of_end, "ended", "stopped")
        elif end is not None:
            yield EngineEvent(run.id, end["time"], end["what"], one_line(end["detail"]))
        elif (job.exit_code is None and job.error in _DIED) or (job.exit_code or 0) < 0:
            yield from self._unless_patient(run, one_line(job.message)[:300] or "its driver died")
        else:
            why = one_line(job.message)[:300] or f"its driver ended with status {job.exit_code}"
            yield EngineEvent(run.id, job.end or self._clock.now(), "failed", why)

    def _unless_patient(self, run: RemoteRun, why: str) -> Iterator[EngineEvent]:
        """Lost, once its workers have had the time to notice that nobody leads them."""
        since = self._missed.setdefault(run.id, self._clock.monotonic())
        if run.has("stopping"):
            yield EngineEvent(run.id, self._clock.now(), "ended", "stopped")
        elif self._clock.monotonic() >= since + self._patience:
            yield EngineEvent(run.id, self._clock.now(), "lost", why)

    def _fetch(self, run: RemoteRun) -> list[dict[str, Any]]:
        """Bring the log here; the driver's notes from it."""
        asked = run.asked
        assert asked is not None
        output, notes = split_notes(self._cluster.output(run.id), asked.secret)
        write_whole(run.log, output)
        return notes


def _package(
    secret: str, places: Sequence[tuple[str, int]], launch: Launch, lease: float
) -> dict[str, bytes]:
    """What travels to the cluster: the driver, what it starts, and what is asked for."""
    told = {
        "secret": secret,
        "parts": places,
        "cpus": launch.cpus,
        "gpus": launch.gpus,
        "memory": int(launch.memory),
        "lease": lease,
        "command": launch.workload.command,
        "environment": dict(launch.environment),
        "folder": os.getcwd(),
    }
    here = Path(__file__).parent
    files = {name: (here / name).read_bytes() for name in _GUEST_FILES}
    return {**files, "launch.json": json.dumps(told).encode()}


def split_notes(text: str, secret: str) -> tuple[str, list[dict[str, Any]]]:
    """What the workers wrote, and what the driver noted; what Ray said before that is left out."""
    first, *parts = text.split(f"\n{secret} ")
    output, notes = "", []
    for part in parts:
        line, _, rest = part.partition("\n")
        notes.append(json.loads(line))
        output += rest
    return (output if parts else first), notes


def _refuse_too_much(place: RayNode, count: int, launch: Launch) -> None:
    node = place.node
    for what, each, most in (
        ("CPUs", launch.cpus, node.cpus),
        ("GPUs", launch.gpus, node.gpus),
        ("bytes of memory", launch.memory, node.memory),
    ):
        if each * count > most:
            shown = format_bytes(most) if "memory" in what else f"{most:g} {what}"
            raise BadInputError(
                f"{count} workers with {each:g} {what} each do not fit on the node {node.name}, "
                f"which has {shown}"
            )
