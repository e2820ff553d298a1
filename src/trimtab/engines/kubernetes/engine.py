"""A Kubernetes cluster as an engine: a run is an Indexed Job with one pod per worker on the named nodes.

Runs are recorded in `$TRIMTAB_HOME/engines/kubernetes/SERVER/NAMESPACE`; the rest is read from the API.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Any
from urllib.parse import parse_qsl

from trimtab.core import (
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
from trimtab.engines.kubernetes.api import KubernetesError, api_client
from trimtab.engines.kubernetes.cluster import (
    HOST_LABEL,
    ApiObject,
    KubernetesCluster,
    RunObjects,
    device_of,
    epoch_seconds,
    first_failure,
    job_object,
    merged_logs,
    node_of,
    quantities,
    secret_object,
    service_object,
    start_time,
)
from trimtab.engines.launch import check_capacity, check_launch, signal_number
from trimtab.engines.run_folder import FINAL, Accepted, Intent, RunFolder, RunFolders
from trimtab.kernel import SteadyClock, write_whole

DEFAULT_IMAGE = "pytorch/pytorch:latest"
"""The image of runs that name none."""

IMAGE_VARIABLE = "TRIMTAB_IMAGE"
"""The variable of a launch's environment that names the run's own image."""

_ENDS_WITHIN = 60.0  # s from the grace's end until Kubernetes must have removed everything
_PAUSE = 0.5  # s between two reads of the remaining pods


class KubernetesEngine:
    """Runs in one namespace of the cluster that KUBECONFIG names.

    The address is `[NAMESPACE][?image=IMAGE]`; without a namespace it is `default`.
    """

    def __init__(
        self, address: str = "", place: Path | None = None, clock: Clock | None = None, client: Any = None
    ) -> None:
        self._namespace, self._image = _parts(address)
        client = client or api_client()
        self._cluster = KubernetesCluster(client, self._namespace)
        server = re.sub(r"[^\w.-]", "_", client.configuration.host.partition("://")[2])
        self._runs = RunFolders(place or home() / "engines" / "kubernetes" / server / self._namespace)
        self._clock = clock or SteadyClock()

    def nodes(self) -> Sequence[Node]:
        """Nodes that are ready; the label `accelerator`, or the vendor's, names their kind of accelerator."""
        return [node for item in self._cluster.nodes() if (node := node_of(item)) is not None]

    def launch(self, launch: Launch) -> str:
        """Create the run's objects, once per key; returns the run's id."""
        run = self._runs.of_key(launch.key)
        with self._runs.alone():
            if run.read(Accepted) is None:
                self._make(run, launch)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Set requests and limits of every pod, in place; needs Kubernetes 1.33."""
        run = self._runs.named(run_id)
        size = quantities(cpus, memory)
        if any(value is not None and not 0 < value < math.inf for value in (cpus, memory)) or not size:
            raise BadInputError(
                f"the run {run_id} cannot have {cpus} CPUs and {memory} bytes of memory; "
                "give a number above zero for at least one of them"
            )
        for pod in self._running_pods(run):
            self._cluster.resize(pod, size)

    def signal(self, run_id: str, name: str) -> None:
        """Send the command in every pod a signal such as "USR1", by a shell in its container."""
        short = Signals(signal_number(name)).name.removeprefix("SIG")
        for pod in self._running_pods(self._runs.named(run_id)):
            status = self._cluster.execute(pod, ["sh", "-c", f"kill -s {short} 1"])
            if status != 0:
                raise TrimtabError(
                    f"{name} could not be sent in the pod {pod} (status {status}); its image needs a shell"
                )

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """Run a command in the container of the first worker, which has its environment; its exit status.

        None if it has not ended after `timeout` seconds. Its output is dropped.
        """
        return self._cluster.execute(self._running_pods(self._runs.named(run_id))[0], command, timeout)

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """Delete the Job and with it all its pods, which get `grace` seconds; returns when they are gone."""
        run = self._runs.named(run_id)
        job = self._cluster.job(_name(run))
        if job is None or _end(job):
            return
        run.mark_stopping()
        self._cluster.delete(_name(run), grace)
        until = self._clock.monotonic() + grace + _ENDS_WITHIN
        while (pods := self._cluster.pods(_name(run))) or self._cluster.job(_name(run)) is not None:
            self._fetch(run, pods)  # the logs are deleted with the pods
            if self._clock.monotonic() > until:
                raise TrimtabError(
                    f"the Job {_name(run)} still exists {_ENDS_WITHIN:g} s after its grace period; "
                    "see kubectl describe on it and its pods"
                )
            self._clock.sleep(_PAUSE)

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; does not block."""
        runs = self._runs.unfinished()
        jobs = self._cluster.followed_jobs() if runs else {}
        for run, _ in runs:
            yield from run.report(self._news(run, jobs.get(_name(run))))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab."""
        runs = self._runs.unfinished()
        jobs = self._cluster.jobs() if runs else []
        going = {item["metadata"]["name"] for item in jobs if not _end(item)}
        return {run.id: intent.key for run, intent in runs if _name(run) in going}

    def log(self, run_id: str) -> Path:
        """The file with the run's output, fetched now; an earlier copy if the API does not answer."""
        run = self._runs.named(run_id)
        if not FINAL & set(run.reported):
            with contextlib.suppress(KubernetesError):
                self._fetch(run, self._cluster.pods(_name(run)))
        if not run.log.exists():
            write_whole(run.log, "")
        return run.log

    def _make(self, run: RunFolder, launch: Launch) -> None:
        """Create the objects. Repeated after a crash, it keeps those that exist and creates the rest."""
        objects = self._objects(run, launch)
        run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
        owner = self._cluster.make_job(job_object(objects))
        self._cluster.make_dependent(service_object(objects, owner))
        if launch.environment:
            self._cluster.make_dependent(secret_object(objects, owner))
        run.keep(Accepted(self._clock.now()))

    def _objects(self, run: RunFolder, launch: Launch) -> RunObjects:
        items = {item["metadata"]["name"]: item for item in self._cluster.nodes()}
        nodes = {name: node for name, item in items.items() if (node := node_of(item)) is not None}
        check_launch(launch, nodes)
        check_capacity(launch, nodes)
        if launch.gpus != int(launch.gpus):
            raise BadInputError(
                f"{launch.gpus:g} accelerators per worker are not possible in Kubernetes; "
                "ask for a whole number"
            )
        parts = [items[name] for name, _ in launch.parts]
        hosts = ((item["metadata"].get("labels") or {}).get(HOST_LABEL) for item in parts)
        return RunObjects(
            _name(run),
            launch,
            launch.environment.get(IMAGE_VARIABLE) or self._image,
            tuple(host or name for host, (name, _) in zip(hosts, launch.parts, strict=True)),
            device_of(parts[0]) if launch.gpus else "",
        )

    def _running_pods(self, run: RunFolder) -> list[str]:
        pods = self._cluster.pods(_name(run))
        names = [item["metadata"]["name"] for item in pods if item["status"].get("phase") == "Running"]
        if not names:
            raise NotFoundError(f"the run {run.id} has no running worker; it has ended, or not started")
        return names

    def _news(self, run: RunFolder, watched: ApiObject | None) -> Iterator[EngineEvent]:
        job = watched or self._cluster.job(_name(run))  # the watch may not have a new one yet
        if job is None:
            yield from self._end_of_deleted(run)
            return
        end = _end(job)
        if not end and "started" in run.reported:
            return
        pods = self._cluster.pods(_name(run))
        start = start_time(pods) if len(pods) == job["spec"]["parallelism"] else None
        if start is not None and "started" not in run.reported:
            yield EngineEvent(run.id, start, "started", f"workers: {len(pods)}")
        if end:
            self._fetch(run, pods)
            yield self._end_event(run, end, pods)

    def _end_event(self, run: RunFolder, end: ApiObject, pods: Sequence[ApiObject]) -> EngineEvent:
        when = (
            epoch_seconds(end["lastTransitionTime"]) if end.get("lastTransitionTime") else self._clock.now()
        )
        if run.stopping:
            return EngineEvent(run.id, when, "ended", "stopped")
        if end["type"] == "Complete":
            return EngineEvent(run.id, when, "ended", "status 0")
        event, why = first_failure(pods)
        return EngineEvent(run.id, when, event or "failed", one_line(why or end.get("message", "")))

    def _end_of_deleted(self, run: RunFolder) -> Iterator[EngineEvent]:
        """The final event of a run whose Job was deleted, once its last pod has ended."""
        if run.read(Accepted) is None or self._cluster.pods(_name(run)):
            return
        if run.stopping:
            yield EngineEvent(run.id, self._clock.now(), "ended", "stopped")
        else:
            yield EngineEvent(
                run.id, self._clock.now(), "lost", "its Job was deleted; its exit status is unknown"
            )

    def _fetch(self, run: RunFolder, pods: Sequence[ApiObject]) -> None:
        """Copy the pods' logs to the run's log, merged."""
        logs = [self._cluster.log(item["metadata"]["name"]) for item in pods]
        if any(logs):
            write_whole(run.log, merged_logs(logs))


def _name(run: RunFolder) -> str:
    return f"trimtab-{run.id}"


def _end(job: ApiObject) -> ApiObject | None:
    """The condition by which a Job has ended; None while it has not."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = (item for item in conditions if item["status"] == "True")
    return next((item for item in true if item["type"] in ("Complete", "Failed")), None)


def _parts(address: str) -> tuple[str, str]:
    namespace, _, query = address.partition("?")
    options = dict(parse_qsl(query))
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|", namespace) or set(options) - {"image"}:
        raise BadInputError(
            f'"kubernetes://{address}" is not the address of an engine; write kubernetes://NAMESPACE?image=IMAGE'
        )
    return namespace or "default", options.get("image", DEFAULT_IMAGE)
