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
    RealClock,
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
from trimtab.kernel import write_whole

DEFAULT_IMAGE = "pytorch/pytorch:latest"
"""The image of runs that name none."""

IMAGE_VARIABLE = "TRIMTAB_IMAGE"
"""The variable of a launch's environment that names the run's own image."""

_ENDS_WITHIN = 60.0  # s from the grace's end until Kubernetes must have removed everything
_PAUSE = 0.5  # s between two looks at what is left


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
        self._kept = RunFolders(place or home() / "engines" / "kubernetes" / server / self._namespace)
        self._clock = clock or RealClock()

    def nodes(self) -> Sequence[Node]:
        """Nodes that are ready; the label `accelerator`, or the vendor's, names their kind of accelerator."""
        return [
            found for found_object in self._cluster.nodes() if (found := node_of(found_object)) is not None
        ]

    def launch(self, launch: Launch) -> str:
        """Make the run's objects, unless they were made for this key before; the run's id."""
        run = self._kept.of_key(launch.key)
        with self._kept.alone():
            if run.read(Accepted) is None:
                self._make(run, launch)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """New requests and limits of every pod, in place; that takes Kubernetes 1.33."""
        run = self._kept.named(run_id)
        wanted = quantities(cpus, memory)
        if any(value is not None and not 0 < value < math.inf for value in (cpus, memory)) or not wanted:
            raise BadInputError("a new size is a number of CPUs or of bytes above zero")
        for pod in self._pods_that_run(run):
            self._cluster.resize(pod, wanted)

    def signal(self, run_id: str, name: str) -> None:
        """Send the command in every pod a signal such as "USR1", by a shell in its container."""
        short = Signals(signal_number(name)).name.removeprefix("SIG")
        for pod in self._pods_that_run(self._kept.named(run_id)):
            self._cluster.execute(pod, ["sh", "-c", f"kill -s {short} 1"])

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """Delete the Job and with it all its pods, which get `grace` seconds; returns when they are gone."""
        run = self._kept.named(run_id)
        found_object = self._cluster.job(_name(run))
        if found_object is None or _end(found_object):
            return
        run.mark_stopping()
        self._cluster.delete(_name(run), grace)
        until = self._clock.monotonic() + grace + _ENDS_WITHIN
        while (pods := self._cluster.pods(_name(run))) or self._cluster.job(_name(run)) is not None:
            self._fetch(run, pods)  # afterwards nobody has it any more
            if self._clock.monotonic() > until:
                raise TrimtabError(
                    f"the Job {_name(run)} is still there {_ENDS_WITHIN:g} s after its grace; "
                    "see kubectl describe on it and its pods"
                )
            self._clock.sleep(_PAUSE)

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; does not block."""
        runs = self._kept.unfinished()
        jobs = self._cluster.followed_jobs() if runs else {}
        for run, _ in runs:
            yield from run.report(self._news(run, jobs.get(_name(run))))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab."""
        runs = self._kept.unfinished()
        jobs = self._cluster.jobs() if runs else []
        going = {each["metadata"]["name"] for each in jobs if not _end(each)}
        return {run.id: intent.key for run, intent in runs if _name(run) in going}

    def log(self, run_id: str) -> Path:
        """The file with what the run has written: fetched now, or as it was when that last went well."""
        run = self._kept.named(run_id)
        if not FINAL & set(run.reported):
            with contextlib.suppress(KubernetesError):
                self._fetch(run, self._cluster.pods(_name(run)))
        if not run.log.exists():
            write_whole(run.log, "")
        return run.log

    def _make(self, run: RunFolder, launch: Launch) -> None:
        """After a crash in the middle, what was made is found by its name, and the rest is made."""
        wanted = self._wanted(run, launch)
        run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
        owner = self._cluster.make_job(job_object(wanted))
        self._cluster.make_dependent(service_object(wanted, owner))
        if launch.environment:
            self._cluster.make_dependent(secret_object(wanted, owner))
        run.keep(Accepted(self._clock.now()))

    def _wanted(self, run: RunFolder, launch: Launch) -> RunObjects:
        found_object = {each["metadata"]["name"]: each for each in self._cluster.nodes()}
        there = {name: found for name, each in found_object.items() if (found := node_of(each)) is not None}
        check_launch(launch, there)
        check_capacity(launch, there)
        if launch.gpus != int(launch.gpus):
            raise BadInputError(f"Kubernetes gives whole accelerators to a worker, not {launch.gpus:g}")
        parts = [found_object[name] for name, _ in launch.parts]
        hosts = ((each["metadata"].get("labels") or {}).get(HOST_LABEL) for each in parts)
        return RunObjects(
            _name(run),
            launch,
            launch.environment.get(IMAGE_VARIABLE) or self._image,
            tuple(host or name for host, (name, _) in zip(hosts, launch.parts, strict=True)),
            device_of(parts[0]) if launch.gpus else "",
        )

    def _pods_that_run(self, run: RunFolder) -> list[str]:
        pods = self._cluster.pods(_name(run))
        names = [each["metadata"]["name"] for each in pods if each["status"].get("phase") == "Running"]
        if not names:
            raise NotFoundError(f"the run {run.id} has no worker that runs; it has ended, or not begun")
        return names

    def _news(self, run: RunFolder, known: ApiObject | None) -> Iterator[EngineEvent]:
        found_object = known or self._cluster.job(_name(run))  # one just made may not have been heard of
        if found_object is None:
            yield from self._gone(run)
            return
        end = _end(found_object)
        if not end and "started" in run.reported:
            return
        pods = self._cluster.pods(_name(run))
        start = start_time(pods) if len(pods) == found_object["spec"]["parallelism"] else None
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
        what, why = first_failure(pods)
        return EngineEvent(run.id, when, what or "failed", one_line(why or end.get("message", "")))

    def _gone(self, run: RunFolder) -> Iterator[EngineEvent]:
        """The final event of a deleted Job, once its last pod is gone."""
        if run.read(Accepted) is None or self._cluster.pods(_name(run)):
            return
        if run.stopping:
            yield EngineEvent(run.id, self._clock.now(), "ended", "stopped")
        else:
            yield EngineEvent(run.id, self._clock.now(), "lost", "its Job is gone; how it ended is not known")

    def _fetch(self, run: RunFolder, pods: Sequence[ApiObject]) -> None:
        """Bring the pods' logs here, as one."""
        logs = [self._cluster.log(each["metadata"]["name"]) for each in pods]
        if any(logs):
            write_whole(run.log, merged_logs(logs))


def _name(run: RunFolder) -> str:
    return f"trimtab-{run.id}"


def _end(found_object: ApiObject) -> ApiObject | None:
    """The condition by which a Job has ended; None while it has not."""
    conditions = (found_object.get("status") or {}).get("conditions") or ()
    true = (each for each in conditions if each["status"] == "True")
    return next((each for each in true if each["type"] in ("Complete", "Failed")), None)


def _parts(address: str) -> tuple[str, str]:
    namespace, _, options = address.partition("?")
    given = dict(parse_qsl(options))
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|", namespace) or set(given) - {"image"}:
        raise BadInputError(
            f'"kubernetes://{address}" is no address of an engine; one is kubernetes://NAMESPACE?image=IMAGE'
        )
    return namespace or "default", given.get("image", DEFAULT_IMAGE)
