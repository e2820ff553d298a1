"""A Ray cluster as an engine: a run is a Ray job whose driver leads one actor per worker on the named nodes.

Trimtab need not be installed on the cluster: the driver is uploaded with the job. Runs are recorded in
`$TRIMTAB_HOME/engines/ray/HOST_PORT`; everything else is read from the dashboard's REST interface. Ray's own
client uses the same interface, but blocks without a timeout if the cluster does not answer.
"""

import contextlib
import hashlib
import http.client
import io
import json
import os
import re
import secrets
import shlex
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, BinaryIO

from trimtab.core import (
    INHERITED,
    INHERITED_PREFIX,
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
from trimtab.engines.launch import check_capacity, check_launch, signal_number
from trimtab.engines.run_folder import FINAL, Accepted, Intent, RunFolder, RunFolders
from trimtab.kernel import SteadyClock, write_whole

_TIMEOUT = 20.0  # s for an answer
_MOST_NODES = 10_000  # the most that Ray lists at once
_OVER = {"SUCCEEDED", "FAILED", "STOPPED"}


class RayError(TrimtabError):
    """The cluster refuses (`status` is its HTTP status), or does not answer (0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node with the id that Ray knows it by."""

    id: str
    node: Node


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as Ray reports it. Times in seconds; `exit_code` is the driver's, None where unknown.

    `node` is the id of the driver's node, and `package` the address of its working directory.
    """

    id: str
    status: str
    message: str
    error: str
    end: float | None
    exit_code: int | None
    node: str | None
    package: str

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.status in _OVER


class RayCluster:
    """The dashboard at HOST:PORT."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or "/" in address:
            raise BadInputError(
                f'"ray://{address}" is not the address of a Ray cluster; name its dashboard, as in ray://HOST:8265'
            )
        self.address = address

    def nodes(self) -> list[RayNode]:
        """Nodes that are alive, by name; nodes with equal names get a part of their id appended."""
        answer = self._json("GET", f"/api/v0/nodes?limit={_MOST_NODES}")
        alive = [record for record in answer["data"]["result"]["result"] if record["state"] == "ALIVE"]
        names = [record["node_name"] or record["node_ip"] for record in alive]
        nodes = []
        for record, name in zip(alive, names, strict=True):
            unique = name if names.count(name) == 1 else f"{name}-{record['node_id'][:8]}"
            node = _node(unique, record["resources_total"], record["labels"])
            nodes.append(RayNode(record["node_id"], node))
        return sorted(nodes, key=lambda ray_node: ray_node.node.name)

    def upload(self, files: Mapping[str, bytes]) -> str:
        """Upload a package of files; returns the address by which jobs name it as their working directory."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as package:
            for name, content in sorted(files.items()):
                package.writestr(zipfile.ZipInfo(name), content)
        body = buffer.getvalue()
        name = f"_ray_pkg_{hashlib.sha256(body).hexdigest()[:32]}.zip"
        self._ask("PUT", f"/api/packages/gcs/{name}", body)
        return f"gcs://{name}"

    def submit(self, job_id: str, command: str, package: str, node: str | None = None, **more: Any) -> None:
        """Start a command in a package's folder; does nothing if a job of that id exists."""
        body_fields: dict[str, Any] = {"entrypoint": command, "submission_id": job_id, **more}
        body_fields["runtime_env"] = {"working_dir": package, **more.get("runtime_env", {})}
        if node is not None:
            body_fields["entrypoint_label_selector"] = {"ray.io/node-id": node}
        try:
            self._json("POST", "/api/jobs/", body_fields)
        except RayError as error:
            if not error.status or self.job(job_id) is None:
                raise

    def jobs(self) -> dict[str, RayJob]:
        """Submitted jobs that Ray still lists, by id."""
        answer = self._json("GET", "/api/jobs/")
        return {record["submission_id"]: _job(record) for record in answer if record.get("submission_id")}

    def job(self, job_id: str) -> RayJob | None:
        """The job with this id; None if Ray does not list it."""
        try:
            return _job(self._json("GET", f"/api/jobs/{job_id}"))
        except RayError as error:
            if error.status == 404:
                return None
            raise

    def output(self, job_id: str) -> str:
        """Output of the job's driver."""
        return str(self._json("GET", f"/api/jobs/{job_id}/logs")["logs"])

    def stop(self, job_id: str) -> None:
        """Ask Ray to end a job's driver; it kills it some seconds later."""
        self._json("POST", f"/api/jobs/{job_id}/stop")

    def forget(self, job_id: str) -> None:
        """Remove a job that has ended from Ray's list."""
        self._json("DELETE", f"/api/jobs/{job_id}")

    def _json(self, method: str, path: str, body_fields: Any = None) -> Any:
        body = None if body_fields is None else json.dumps(body_fields).encode()
        answer = self._ask(method, path, body)
        try:
            return json.loads(answer)
        except ValueError:
            raise RayError(
                0, f"the server at {self.address} is not a Ray dashboard; check the address"
            ) from None

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            body,
            {"Content-Type": "application/json", **_token()},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # nosec B310 # always http
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            why = _last_line(error.read().decode(errors="replace"))
            raise RayError(error.code, f"the Ray cluster at {self.address} refuses: {why}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = str(getattr(reason, "strerror", None) or reason or type(reason).__name__).lower()
            raise RayError(
                0,
                f"the Ray cluster at {self.address} does not answer ({why}); its runs are not changed",
            ) from None


def _token() -> dict[str, str]:
    """The authorization header with the token that Ray's own tools would use; empty without a token."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise BadInputError(
                f"RAY_AUTH_TOKEN_PATH names {path}, which cannot be read: {error.strerror}"
            ) from None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _node(name: str, resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    kinds = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    kind = labels.get("accelerator") or labels.get("ray.io/accelerator-type") or next(iter(kinds), "")
    gpus = int(resources.get("GPU", 0))
    return Node(
        name,
        cpus=float(resources.get("CPU", 0)),
        memory=float(resources.get("memory", 0)),
        accelerator=kind if gpus else "",
        gpus=gpus,
        zone=labels.get("zone") or labels.get("ray.io/availability-zone", ""),
    )


def _job(answer: Mapping[str, Any]) -> RayJob:
    end = answer.get("end_time")
    return RayJob(
        answer["submission_id"],
        answer["status"],
        answer.get("message") or "",
        answer.get("error_type") or "",
        end / 1000 if end else None,
        answer.get("driver_exit_code"),
        answer.get("driver_node_id"),
        (answer.get("runtime_env") or {}).get("working_dir", ""),
    )


def _last_line(text: str) -> str:
    """The last line with words: Ray answers with a traceback, which ends with the reason."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip(" .")]
    return lines[-1][:300] if lines else "no reason given"


PATIENCE = 30.0
"""Seconds for which a run is missing before it counts as lost; its workers end in half of that."""

_ORDER_WITHIN = 60.0  # s for an order to reach the driver
_ENDS_WITHIN = 20.0  # s from the grace's end to the end of the job
_PAUSE = 0.2  # s between two reads of a job's state
_STOP_WAIT = 15  # s from Ray's own stop to the driver's death
_GUEST_FILES = ("gang.py", "holder.py")
_DIED = {"JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", ""}


@dataclass(frozen=True, slots=True)
class Secret:
    """The word that marks the driver's notes within the workers' output."""

    word: str


class RayEngine:
    """Launches, signals, stops and watches gangs on the Ray cluster whose dashboard is at `address`."""

    def __init__(
        self, address: str, place: Path | None = None, clock: Clock | None = None, patience: float = PATIENCE
    ) -> None:
        self._cluster = RayCluster(address)
        folder = re.sub(r"[^\w.-]", "_", address)
        self._runs = RunFolders(place or home() / "engines" / "ray" / folder)
        self._clock = clock or SteadyClock()
        self._patience = patience
        self._missed: dict[str, float] = {}  # when (monotonic) a run was first missing

    def nodes(self) -> Sequence[Node]:
        """Machines that are alive; the label `accelerator` names their kind of accelerator."""
        return [ray_node.node for ray_node in self._cluster.nodes()]

    def launch(self, launch: Launch) -> str:
        """Submit it as a Ray job, once per key; returns the run's id."""
        run = self._runs.of_key(launch.key)
        with self._runs.alone():
            if run.read(Accepted) is None:
                self._submit(run, launch)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Refused: Ray cannot change what a worker reserves."""
        self._runs.named(run_id)
        raise BadInputError(f"Ray cannot resize the run {run_id}; stop it, and launch it with other limits")

    def signal(self, run_id: str, name: str) -> None:
        """Send the command of every worker a signal such as "USR1"; arrives within seconds."""
        number = signal_number(name)
        run = self._runs.named(run_id)
        job = self._cluster.job(_job_id(run))
        if job is None or job.over:
            raise NotFoundError(f"the run {run_id} has ended; {name} cannot be sent to it")
        if not self._order(job, {"signal": Signals(number).name.removeprefix("SIG")}):
            raise TrimtabError(f"the signal {name} did not reach the driver of the run {run_id}; try again")

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """Run a command beside the first worker, by its actor, with its environment; its exit status.

        None if it has not ended after `timeout` seconds, when it is killed. Its output is dropped.
        """
        run = self._runs.named(run_id)
        job = self._cluster.job(_job_id(run))
        if job is None or job.over:
            raise NotFoundError(f'the run {run_id} has ended; "{command[0]}" cannot be run in it')
        name = secrets.token_hex(8)
        if not self._order(job, {"execute": list(command), "timeout": timeout, "name": name}):
            raise TrimtabError(f'"{command[0]}" did not reach the driver of the run {run_id}; try again')
        until = self._clock.monotonic() + timeout + _ORDER_WITHIN
        while self._clock.monotonic() < until:
            for note in self._fetch(run):
                if note["what"] == "executed" and note["name"] == name:
                    if note["problem"]:
                        raise BadInputError(one_line(note["problem"]))
                    status: int | None = note["status"]
                    return status
            if self._over_within(job.id, 0.0):
                raise NotFoundError(f'the run {run_id} has ended; "{command[0]}" was ended with it')
            self._clock.sleep(_PAUSE)
        return None

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End all its workers: SIGTERM first, SIGKILL after `grace` seconds; returns when the job is over."""
        run = self._runs.named(run_id)
        job = self._cluster.job(_job_id(run))
        if job is None or job.over:
            return
        run.mark_stopping()
        answer = job.status == "RUNNING" and self._order(job, {"stop": grace})
        if answer and self._over_within(job.id, grace + _ENDS_WITHIN):
            return
        self._cluster.stop(job.id)
        if not self._over_within(job.id, _STOP_WAIT + _ENDS_WITHIN):
            raise TrimtabError(f"the run {run_id} cannot be stopped; see the job {job.id} in Ray's dashboard")

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; does not block."""
        runs = self._runs.unfinished()
        jobs = self._cluster.jobs() if runs else {}
        for run, _ in runs:
            yield from run.report(self._news(run, jobs.get(_job_id(run))))
            if FINAL & set(run.reported):
                self._forget_orders(run, jobs)

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab."""
        runs = self._runs.unfinished()
        jobs = self._cluster.jobs() if runs else {}
        going = {job.id for job in jobs.values() if not job.over}
        return {run.id: intent.key for run, intent in runs if _job_id(run) in going}

    def log(self, run_id: str) -> Path:
        """The file with the run's output, fetched now; an earlier copy if the cluster does not answer."""
        run = self._runs.named(run_id)
        if not FINAL & set(run.reported):
            with contextlib.suppress(RayError):
                self._fetch(run)
        if not run.log.exists():
            write_whole(run.log, "")
        return run.log

    def _submit(self, run: RunFolder, launch: Launch) -> None:
        """Submit the run's job. Repeated after a crash, it has the same id, and Ray starts it only once."""
        places = self._places(launch)
        run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
        secret = run.read(Secret) or Secret(secrets.token_hex(16))
        run.keep(secret)
        package = self._cluster.upload(_package(secret.word, places, launch, self._patience / 2))
        stop_wait = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT)}}
        self._cluster.submit(_job_id(run), "python gang.py", package, runtime_env=stop_wait)
        run.keep(Accepted(self._clock.now()))

    def _places(self, launch: Launch) -> list[tuple[str, int]]:
        """Ray's ids of the nodes with their workers; refuses a launch that they could never hold."""
        nodes = {ray_node.node.name: ray_node for ray_node in self._cluster.nodes()}
        check_launch(launch, nodes)
        if launch.gpus > 1 and launch.gpus % 1:
            raise BadInputError(
                f"{launch.gpus:g} accelerators per worker are not possible in Ray; "
                "ask for a whole number, or for a share of one"
            )
        check_capacity(launch, {name: ray_node.node for name, ray_node in nodes.items()})
        return [(nodes[name].id, count) for name, count in launch.parts]

    def _order(self, job: RayJob, order: Mapping[str, Any]) -> bool:
        """Put an order into the driver's folder, by a second job on the driver's node; True on success."""
        name = f"{time.time_ns()}"
        text = shlex.quote(json.dumps(order))
        command = (
            f"mkdir -p orders && printf %s {text} > orders/{name} && mv orders/{name} orders/{name}.json"
        )
        messenger = f"{job.id}-order-{name}"
        self._cluster.submit(messenger, command, job.package, job.node)
        if not self._over_within(messenger, _ORDER_WITHIN):
            self._cluster.stop(messenger)
        sent = self._cluster.job(messenger)
        return sent is not None and sent.status == "SUCCEEDED"

    def _forget_orders(self, run: RunFolder, jobs: Mapping[str, RayJob]) -> None:
        for job in jobs.values():
            if job.over and job.id.startswith(f"{_job_id(run)}-order-"):
                with contextlib.suppress(RayError):  # then it only stays in the dashboard's list
                    self._cluster.forget(job.id)

    def _over_within(self, job_id: str, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        while (job := self._cluster.job(job_id)) is not None and not job.over:
            if self._clock.monotonic() > until:
                return False
            self._clock.sleep(_PAUSE)
        return True

    def _news(self, run: RunFolder, job: RayJob | None) -> Iterator[EngineEvent]:
        if job is None:
            if run.read(Accepted) is not None:
                yield from self._lost_after_patience(run, "the cluster no longer lists its job")
            return
        if job.status == "PENDING" or (job.status == "RUNNING" and "started" in run.reported):
            return
        notes = self._fetch(run)
        for note in notes:
            if note["what"] == "started" and "started" not in run.reported:
                yield EngineEvent(run.id, note["time"], "started", note["detail"])
        if not job.over:
            return
        end = next((note for note in notes if note["what"] in ("ended", "failed", "lost")), None)
        if run.stopping:
            time_of_end = end["time"] if end else job.end or self._clock.now()
            yield EngineEvent(run.id, time_of_end, "ended", "stopped")
        elif end is not None:
            yield EngineEvent(run.id, end["time"], end["what"], one_line(end["detail"]))
        elif (job.exit_code is None and job.error in _DIED) or (job.exit_code or 0) < 0:
            yield from self._lost_after_patience(run, _first_sentence(job.message) or "its driver died")
        else:
            why = _first_sentence(job.message) or f"its driver ended with status {job.exit_code}"
            yield EngineEvent(run.id, job.end or self._clock.now(), "failed", why)

    def _lost_after_patience(self, run: RunFolder, why: str) -> Iterator[EngineEvent]:
        """Report the run as lost once its workers have had the time to end without their driver."""
        since = self._missed.setdefault(run.id, self._clock.monotonic())
        if run.stopping:
            yield EngineEvent(run.id, self._clock.now(), "ended", "stopped")
        elif self._clock.monotonic() >= since + self._patience:
            yield EngineEvent(run.id, self._clock.now(), "lost", why)

    def _fetch(self, run: RunFolder) -> list[dict[str, Any]]:
        """Copy the job's output to the run's log; returns the driver's notes from it."""
        secret = run.read(Secret)
        output, notes = split_notes(self._cluster.output(_job_id(run)), secret.word if secret else "")
        dropped = max((note["bytes"] for note in notes if note["what"] == "dropped"), default=0)

        def write(file: BinaryIO) -> None:
            file.seek(dropped)  # positions in the log stay what they were
            file.write(output.encode())

        write_whole(run.log, write)
        return notes


def _first_sentence(text: str) -> str:
    return one_line(text).split(". ")[0][:300]


def _job_id(run: RunFolder) -> str:
    return f"trimtab-{run.id}"


def _package(
    secret: str, places: Sequence[tuple[str, int]], launch: Launch, lease: float
) -> dict[str, bytes]:
    """Files that are uploaded to the cluster: the driver, its helper, and the launch."""
    spec = {
        "secret": secret,
        "parts": places,
        "cpus": launch.cpus,
        "gpus": launch.gpus,
        "memory": int(launch.memory),
        "lease": lease,
        "command": launch.workload.command,
        "environment": dict(launch.environment),
        "inherited": sorted(INHERITED | {"RAY_ADDRESS"}),
        "inherited_prefix": INHERITED_PREFIX,
        "folder": os.getcwd(),
        "log": int(launch.log),
    }
    here = Path(__file__).parent
    files = {name: (here / name).read_bytes() for name in _GUEST_FILES}
    return {**files, "launch.json": json.dumps(spec).encode()}


def split_notes(text: str, secret: str) -> tuple[str, list[dict[str, Any]]]:
    """Output of the workers, and notes of the driver; Ray's own output before them is dropped."""
    first, *parts = text.split(f"\n{secret} ")
    output, notes = "", []
    for part in parts:
        line, _, rest = part.partition("\n")
        notes.append(json.loads(line))
        output += rest
    return (output if parts else first), notes
