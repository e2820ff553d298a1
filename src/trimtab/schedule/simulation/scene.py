"""From a trace to a simulation: jobs, a cluster, and a world in which they progress.

The world depends on what the jobs declare. Work and speeds (or a duration): they progress accordingly. Work
in steps and the name of a model: at the measured steps per second (`gpu-throughput`). Only the name of an
application: by measured step times and gradients (`goodput`), with a batch that adapts to the job's workers,
or with the workers and batch that its user asked for.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from trimtab.core import (
    BadInputError,
    Bytes,
    Count,
    Name,
    NotFoundError,
    StrictModel,
    Whole,
    did_you_mean,
    parse_price,
    parse_rate,
    quantity,
)
from trimtab.kernel import read_user_file
from trimtab.schedule.cluster import Cluster, Floats, Market, NodeGroup, impossible, usual_shapes
from trimtab.schedule.job import Checkpoint, Job, kind_of
from trimtab.schedule.quota import Quotas
from trimtab.schedule.simulation.goodput import GoodputWorld
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication, read_profiles
from trimtab.schedule.simulation.rigid import RigidWorld
from trimtab.schedule.simulation.state import World
from trimtab.schedule.simulation.tabular import (
    JobClass,
    TabularWorld,
    declared_rates,
    rates,
    read_throughputs,
    requested_shapes,
)
from trimtab.schedule.traces.registry import read_trace, trace_names
from trimtab.schedule.traces.table import Trace
from trimtab.store import Tenant

_WITH_PARTS = ("goodput/workloads.csv.gz", "gpu-throughput/gavel_traces.csv.gz")
_WITHOUT_PARTS = ("goodput/philly_trace.csv.gz", "gpu-cluster/ali_v2023_pods_default.csv.gz")


def find_trace(path: Path, part: str | None) -> tuple[Trace, Path]:
    """The trace in a file, a data set or a folder of data sets, and the file it is in."""
    if not path.is_dir():
        return read_trace(path, part), path
    alone = {file.name.removesuffix(".csv.gz"): file for file in _present(path, _WITHOUT_PARTS)}
    several = _present(path, _WITH_PARTS)
    if part in alone:
        return read_trace(alone[part]), alone[part]
    if part is None and len(several) == 1 and not alone:
        return read_trace(several[0]), several[0]
    parts = {name: file for file in several for name in trace_names(file)}
    names = [*parts, *alone]
    if not names:
        raise NotFoundError(
            f"{path} holds none of the known traces ({', '.join((*_WITH_PARTS, *_WITHOUT_PARTS))}); "
            "name the file of one"
        )
    if part is None:
        raise BadInputError(f"{path} holds {len(names)} traces; name one with --part, such as {names[0]}")
    file = parts.get(part) or parts.get(part.replace("/workload-", "-"))
    if file is None:
        hint = did_you_mean(part, names) or f"; the traces are {', '.join(names[:12])}"
        raise NotFoundError(f'{path} holds no trace "{part}"{hint}')
    return read_trace(file, part), file


def data_set(name: str, marker: str, data: Path | None, trace: Path) -> Path:
    """The folder of a data set, found by a file in it: below `data`, else next to the trace."""
    places = [data / name, data] if data is not None else [trace.parent, trace.parent.parent / name]
    folder = next((place for place in places if (place / marker).is_file()), None)
    if folder is None:
        raise NotFoundError(
            f"the speeds of these jobs are in the data set {name}, and there is no {marker} in "
            f"{' or '.join(map(str, places))}; name the folder that holds {name} with --data"
        )
    return folder


def _present(folder: Path, files: Sequence[str]) -> list[Path]:
    """The existing ones of these files, below a folder or directly in it if it is a single data set."""
    places = [(folder / file, folder / Path(file).name) for file in files]
    existing = [next((place for place in pair if place.is_file()), None) for pair in places]
    return [place for place in existing if place is not None]


ADAPTIVE_ROUND, RIGID_ROUND = 60.0, 360.0
"""Default seconds between decisions: the rounds in which Sia and Gavel were measured."""

_MOST = 64  # workers of an adaptive job

_CPUS, _MEMORY = 8.0, 64e9  # defaults per accelerator of a node

_Amount = Annotated[float, quantity(float, "a number of accelerators")]


class GroupDocument(StrictModel):
    """One group of equal nodes in a cluster file."""

    name: Name | None = None
    accelerator: Name | None = None
    nodes: Count = 1
    gpus: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None
    cpus: Annotated[float, quantity(float, "a number above 0"), Field(gt=0)] | None = None
    memory: Annotated[Bytes, Field(gt=0)] | None = None
    price: Annotated[float, quantity(parse_price, "the price of one node, such as $3.20/h")] = 0.0
    market: Market = Market.ON_DEMAND
    reclaims: Annotated[float, quantity(parse_rate, "the rate of reclaims of a node, such as 0.05/h")] = 0.0
    zone: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.gpus and self.accelerator is None:
            raise ValueError("accelerator is missing; name the kind, such as a100")
        if not self._gpus and (self.cpus is None or self.memory is None):
            missing = "cpus" if self.cpus is None else "memory"
            raise ValueError(f"{missing} is missing; nodes without accelerators need cpus and memory")
        if "reclaims" in self.model_fields_set and self.market is not Market.SPOT:
            raise ValueError("reclaims needs market: spot, because only spot nodes are reclaimed")
        return self

    @property
    def _gpus(self) -> int:
        return (1 if self.accelerator else 0) if self.gpus is None else self.gpus

    def group(self) -> NodeGroup:
        """The group, with default CPUs and memory per accelerator."""
        gpus = self._gpus
        kind = kind_of(self.accelerator or "") if gpus else ""
        return NodeGroup(
            name=self.name or kind or "cpu",
            accelerator=kind,
            nodes=self.nodes,
            gpus=gpus,
            cpus=_CPUS * gpus if self.cpus is None else self.cpus,
            memory=_MEMORY * gpus if self.memory is None else self.memory,
            price=self.price,
            market=self.market,
            reclaims=self.reclaims,
            zone=self.zone,
        )


class ClusterDocument(StrictModel):
    """A cluster file: described in docs/reference/traces.md."""

    groups: Annotated[list[GroupDocument], Field(min_length=1)]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [item.group().name for item in self.groups]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"two groups are called {repeated}; every group needs a name of its own")
        return self


class TenantDocument(StrictModel):
    """One tenant in a file of quotas."""

    name: Name
    parent: Name | None = None
    guarantee: _Amount = 0.0
    limit: Annotated[_Amount, Field(gt=0)] | None = None
    weight: Annotated[_Amount, Field(gt=0)] = 1.0


class QuotasDocument(StrictModel):
    """A file of quotas: described in docs/reference/traces.md."""

    tenants: Annotated[list[TenantDocument], Field(min_length=1)]


def read_cluster(path: Path) -> tuple[NodeGroup, ...]:
    """The groups of a cluster file."""
    document = read_user_file(path, ClusterDocument, "that describes a cluster")
    return tuple(item.group() for item in document.groups)


def read_quotas(path: Path) -> Quotas:
    """Guarantees and limits of tenants."""
    document = read_user_file(path, QuotasDocument, "that describes tenants")
    return Quotas(Tenant(**item.model_dump()) for item in document.tenants)


@dataclass(frozen=True, slots=True)
class Scene:
    """Input of a simulation. `world` makes a fresh world for every policy; `round` is in seconds."""

    name: str
    jobs: tuple[Job, ...]
    cluster: Cluster
    world: Callable[[], World]
    round: float
    notes: tuple[str, ...] = ()


def scene_of(
    trace: Trace,
    path: Path,
    groups: Sequence[NodeGroup] | None = None,
    data: Path | None = None,
    rigid: bool = False,
) -> Scene:
    """A trace that was read from `path`, on these groups or on its own."""
    chosen = tuple(groups or trace.groups)
    if not chosen:
        raise BadInputError(
            f"the trace {trace.name} does not name its cluster; describe one with --cluster FILE.yaml"
        )
    unmeasured = all(not job.speeds and job.application for job in trace.jobs)
    if unmeasured and all(job.work is None for job in trace.jobs):
        folder = data_set("goodput", "placements.csv.gz", data, path)
        return _measured_applications(trace, chosen, folder, rigid)
    if rigid:
        raise BadInputError("--rigid is for jobs that adapt; the jobs of this trace have fixed sizes")
    if unmeasured and all(job.work is not None for job in trace.jobs):
        folder = data_set("gpu-throughput", "gavel_throughputs.csv.gz", data, path)
        return _measured_models(trace, chosen, folder)
    cluster = _cluster(trace.jobs, chosen)
    classes, rates_of = declared_rates(trace.jobs, cluster)
    seconds = ADAPTIVE_ROUND if any(job.elastic for job in trace.jobs) else RIGID_ROUND
    return _tabular(trace, trace.jobs, cluster, classes, rates_of, seconds)


def refuse_beyond_quotas(scene: Scene, quotas: Quotas) -> None:
    """Raise where a gang is larger than its tenant's limit: it would wait for ever."""
    for job in scene.jobs:
        needed = job.least * job.worker.gpus
        for tenant in quotas.line(job.workload.tenant):
            if tenant.limit is not None and needed > tenant.limit:
                raise BadInputError(
                    f"job {job.id} can never run: it needs {needed:g} accelerators, and tenant {tenant.name} "
                    f"may use at most {tenant.limit:g} at a time; raise the limit"
                )


def _cluster(jobs: Sequence[Job], groups: tuple[NodeGroup, ...]) -> Cluster:
    """The cluster with the shapes that jobs request."""
    _refuse_impossible(jobs, groups)
    return Cluster(groups, requested_shapes(jobs, groups))


def _tabular(
    trace: Trace,
    jobs: tuple[Job, ...],
    cluster: Cluster,
    classes: Sequence[Hashable],
    rates_of: Mapping[Hashable, Floats],
    seconds: float,
) -> Scene:
    work = np.array([job.work for job in jobs], dtype=float)

    def world() -> World:
        return TabularWorld(jobs, cluster, classes, rates_of, work)

    return Scene(trace.name, jobs, cluster, world, seconds, trace.notes)


def _measured_models(trace: Trace, groups: tuple[NodeGroup, ...], folder: Path) -> Scene:
    """Steps per second by model, batch and number of accelerators. Where work can be lost, it is saved."""
    jobs = tuple(replace(job, checkpoint=job.checkpoint or Checkpoint(restart=0.0)) for job in trace.jobs)
    cluster = _cluster(jobs, groups)
    classes = [_model(job) for job in jobs]
    measured: dict[Hashable, Floats] = dict(rates(read_throughputs(folder), set(classes), cluster).items())
    for job, item in zip(jobs, classes, strict=True):
        if not measured[item].any():
            kinds = ", ".join(dict.fromkeys(group.accelerator for group in groups))
            raise BadInputError(
                f"job {job.id} can never run on this cluster: no speed of {job.application} with {job.least} "
                f"workers was measured on {kinds}; add columns with speeds to the trace"
            )
    return _tabular(trace, jobs, cluster, classes, measured, RIGID_ROUND)


def _model(job: Job) -> JobClass:
    """The model, batch and accelerators of a job of the application "ResNet-18/32"."""
    model, _, batch = job.application.partition("/")
    try:
        return model, float(batch) if batch else None, job.least
    except ValueError:
        raise BadInputError(
            f'job {job.id}: the application "{job.application}" is not a model with a batch size, such as '
            "ResNet-18/32"
        ) from None


def _measured_applications(trace: Trace, groups: tuple[NodeGroup, ...], folder: Path, rigid: bool) -> Scene:
    profiles = read_profiles(folder)
    _refuse_unmeasured(trace.jobs, groups, profiles)
    saving = {name: Checkpoint(restart=item.nature.restart) for name, item in profiles.items()}
    jobs = tuple(replace(job, checkpoint=job.checkpoint or saving[job.application]) for job in trace.jobs)
    if rigid:
        cluster = _cluster(jobs, groups)
        batches = [
            trace.batch_sizes.get(job.id) or job.least * profiles[job.application].smallest for job in jobs
        ]

        def rigid_world() -> World:
            return RigidWorld(profiles, jobs, batches, cluster)

        return Scene(trace.name, jobs, cluster, rigid_world, RIGID_ROUND, trace.notes)
    jobs = replace(trace, jobs=jobs).elastic(_MOST).jobs
    _refuse_impossible(jobs, groups)
    cluster = Cluster(groups, usual_shapes(groups, _MOST))
    applications = [job.application for job in jobs]

    def world() -> World:
        return GoodputWorld(profiles, applications, cluster)

    return Scene(trace.name, jobs, cluster, world, ADAPTIVE_ROUND, trace.notes)


def _refuse_unmeasured(
    jobs: Sequence[Job], groups: Sequence[NodeGroup], profiles: dict[str, MeasuredApplication]
) -> None:
    kinds = {group.accelerator for group in groups}
    for job in {job.application: job for job in jobs}.values():
        if job.application not in profiles:
            hint = did_you_mean(job.application, profiles) or f"; the measured ones are {', '.join(profiles)}"
            raise NotFoundError(
                f'job {job.id} has neither length nor speed, only the application "{job.application}", '
                f"which was not measured{hint}"
            )
        measured = profiles[job.application].kinds
        if not kinds & set(measured):
            raise BadInputError(
                f"job {job.id} can never run on this cluster: {job.application} was measured on "
                f"{', '.join(measured)}, and the cluster has {', '.join(sorted(kinds))}"
            )


def _refuse_impossible(jobs: Sequence[Job], groups: Sequence[NodeGroup]) -> None:
    for job in {(job.worker, job.least): job for job in reversed(jobs)}.values():
        sentence = impossible(job, groups)
        if sentence is not None:
            raise BadInputError(f"job {job.id} can never run on this cluster: {sentence}")
