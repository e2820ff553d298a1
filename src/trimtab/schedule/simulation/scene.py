"""From a trace to what is simulated: jobs, a cluster, and a world in which they progress.

What jobs tell decides the world. Work and speeds (or a duration): they progress as told. Work in steps and
the name of a model: at the steps per second that were measured (`gpu-throughput`). Only the name of an
application: by measured step times and gradients (`goodput`), with a batch that adapts to what the job is
given, or as rigid as its user asked for.
"""

from collections.abc import Callable, Hashable, Sequence
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
from trimtab.schedule.cluster import Cluster, Floats, Group, Market, impossible, usual_shapes
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
    """The trace in a file, or in a folder of data sets or one of them; and the file it is in."""
    if not path.is_dir():
        return read_trace(path, part), path
    alone = {file.name.removesuffix(".csv.gz"): file for file in _present(path, _WITHOUT_PARTS)}
    several = _present(path, _WITH_PARTS)
    if part in alone:
        return read_trace(alone[part]), alone[part]
    if part is None and len(several) == 1 and not alone:
        return read_trace(several[0]), several[0]
    parts = {name: file for file in several for name in trace_names(file)}
    known = [*parts, *alone]
    if not known:
        raise NotFoundError(
            f"{path} holds none of the traces known by name ({', '.join((*_WITH_PARTS, *_WITHOUT_PARTS))}); "
            "give the file of one"
        )
    if part is None:
        raise BadInputError(f"{path} holds {len(known)} traces: say which with --part, such as {known[0]}")
    file = parts.get(part) or parts.get(part.replace("/workload-", "-"))
    if file is None:
        hint = did_you_mean(part, known) or f"; there are {', '.join(known[:12])}"
        raise NotFoundError(f'{path}: no trace is called "{part}"{hint}')
    return read_trace(file, part), file


def data_set(name: str, marker: str, data: Path | None, trace: Path) -> Path:
    """The folder of a data set, by a file that is in it: below `data`, else beside the trace."""
    places = [data / name, data] if data is not None else [trace.parent, trace.parent.parent / name]
    found = next((place for place in places if (place / marker).is_file()), None)
    if found is None:
        raise NotFoundError(
            f"how fast these jobs are is measured in the data set {name}, and there is no {marker} in "
            f"{' or '.join(map(str, places))}; --data names the folder that holds {name}"
        )
    return found


def _present(folder: Path, files: Sequence[str]) -> list[Path]:
    """Existing ones of these files, below a folder or directly in it if it is a single data set."""
    places = [(folder / file, folder / Path(file).name) for file in files]
    return [
        next(place for place in pair if place.is_file()) for pair in places if any(p.is_file() for p in pair)
    ]


ADAPTIVE_ROUND, RIGID_ROUND = 60.0, 360.0
"""Seconds between decisions where nobody says: the rounds in which Sia and Gavel were measured."""

_MOST = 64  # workers of an adaptive job


# Beside each accelerator of a node if the file does not say.
_CPUS, _MEMORY = 8.0, 64e9

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
    reclaims: Annotated[float, quantity(parse_rate, "how often a node is taken away, such as 0.05/h")] = 0.0
    zone: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.gpus and self.accelerator is None:
            raise ValueError("accelerator is missing; name the kind, such as a100")
        if not self._gpus and (self.cpus is None or self.memory is None):
            missing = "cpus" if self.cpus is None else "memory"
            raise ValueError(f"{missing} is missing; nodes without accelerators need cpus and memory")
        if "reclaims" in self.model_fields_set and self.market is not Market.SPOT:
            raise ValueError("only nodes of the market spot are reclaimed; add market: spot")
        return self

    @property
    def _gpus(self) -> int:
        return (1 if self.accelerator else 0) if self.gpus is None else self.gpus

    def group(self) -> Group:
        """The group, with the usual CPUs and memory beside each accelerator."""
        gpus = self._gpus
        kind = kind_of(self.accelerator or "") if gpus else ""
        return Group(
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
    """A cluster file: described in docs/schedule.md."""

    groups: Annotated[list[GroupDocument], Field(min_length=1)]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [each.group().name for each in self.groups]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two groups are called {twice}; every group needs a name of its own")
        return self


class TenantDocument(StrictModel):
    """One tenant in a file of quotas."""

    name: Name
    parent: Name | None = None
    guarantee: _Amount = 0.0
    limit: Annotated[_Amount, Field(gt=0)] | None = None
    weight: Annotated[_Amount, Field(gt=0)] = 1.0


class QuotasDocument(StrictModel):
    """A file of quotas: described in docs/schedule.md."""

    tenants: Annotated[list[TenantDocument], Field(min_length=1)]


def read_cluster(path: Path) -> tuple[Group, ...]:
    """The groups of a cluster file."""
    document = read_user_file(path, ClusterDocument, "that describes a cluster")
    return tuple(each.group() for each in document.groups)


def read_quotas(path: Path) -> Quotas:
    """Guarantees and limits of tenants."""
    document = read_user_file(path, QuotasDocument, "that describes tenants")
    return Quotas(Tenant(**each.model_dump()) for each in document.tenants)


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is simulated. `world` makes a fresh one for every policy; `round` is in seconds."""

    name: str
    jobs: tuple[Job, ...]
    cluster: Cluster
    world: Callable[[], World]
    round: float
    notes: tuple[str, ...] = ()


def scene_of(
    trace: Trace,
    path: Path,
    groups: Sequence[Group] | None = None,
    data: Path | None = None,
    rigid: bool = False,
) -> Scene:
    """A trace that was read from `path`, on these groups or those it was meant for."""
    chosen = tuple(groups or trace.groups)
    if not chosen:
        raise BadInputError(
            f"the trace {trace.name} does not say on which cluster it ran; --cluster FILE.yaml describes one"
        )
    described = _description(trace)
    if rigid and described != "application":
        raise BadInputError(
            "--rigid is for jobs that adapt; the jobs of this trace have the size they ask for"
        )
    if described == "application":
        return _measured_applications(
            trace, chosen, data_set("goodput", "placements.csv.gz", data, path), rigid
        )
    if described == "steps":
        folder = data_set("gpu-throughput", "gavel_throughputs.csv.gz", data, path)
        return _measured_models(trace, chosen, folder)
    return _declared_by_jobs(trace, chosen)


def refuse_beyond_quotas(scene: Scene, quotas: Quotas) -> None:
    """Raise where a gang is larger than its tenant may ever be: it would wait for ever."""
    for job in scene.jobs:
        wanted = job.least * job.worker.gpus
        for tenant in quotas.line(job.workload.tenant):
            if tenant.limit is not None and wanted > tenant.limit:
                raise BadInputError(
                    f"job {job.id} can never run: it asks for {wanted:g} accelerators, and {tenant.name} may "
                    f"use at most {tenant.limit:g} at a time; raise the limit"
                )


def _description(trace: Trace) -> str:
    """Kind of description that jobs give: the application only, steps of a model, or everything."""
    if all(job.work is None and not job.speeds and job.application for job in trace.jobs):
        return "application"
    if all(job.work is not None and not job.speeds and job.application for job in trace.jobs):
        return "steps"
    return "everything"


def _declared_by_jobs(trace: Trace, groups: tuple[Group, ...]) -> Scene:
    jobs = trace.jobs
    _refuse_impossible(jobs, groups)
    cluster = Cluster(groups, requested_shapes(jobs, groups))
    classes, rates_of = declared_rates(jobs, cluster)
    work = np.array([job.work for job in jobs], dtype=float)

    def world() -> World:
        return TabularWorld(jobs, cluster, classes, rates_of, work)

    elastic = any(job.elastic for job in jobs)
    return Scene(trace.name, jobs, cluster, world, ADAPTIVE_ROUND if elastic else RIGID_ROUND, trace.notes)


def _measured_models(trace: Trace, groups: tuple[Group, ...], folder: Path) -> Scene:
    """Steps per second by model, batch and number of accelerators. Where work can be lost, it is saved."""
    jobs = tuple(replace(job, checkpoint=job.checkpoint or Checkpoint(restart=0.0)) for job in trace.jobs)
    _refuse_impossible(jobs, groups)
    cluster = Cluster(groups, requested_shapes(jobs, groups))
    classes = [_model(job) for job in jobs]
    measured: dict[Hashable, Floats] = dict(rates(read_throughputs(folder), set(classes), cluster).items())
    for job, each in zip(jobs, classes, strict=True):
        if not measured[each].any():
            kinds = ", ".join(dict.fromkeys(group.accelerator for group in groups))
            raise BadInputError(
                f"job {job.id} can never run here: no speed of {job.application} with {job.least} workers "
                f"was measured on {kinds}; a trace may tell speeds itself"
            )
    work = np.array([job.work for job in jobs], dtype=float)

    def world() -> World:
        return TabularWorld(jobs, cluster, classes, measured, work)

    return Scene(trace.name, jobs, cluster, world, RIGID_ROUND, trace.notes)


def _model(job: Job) -> JobClass:
    """ "ResNet-18/32" on so many accelerators."""
    model, _, batch = job.application.partition("/")
    try:
        return model, float(batch) if batch else None, job.least
    except ValueError:
        raise BadInputError(
            f'job {job.id}: the application "{job.application}" is not a model with a batch size, such as '
            "ResNet-18/32"
        ) from None


def _measured_applications(trace: Trace, groups: tuple[Group, ...], folder: Path, rigid: bool) -> Scene:
    profiles = read_profiles(folder)
    _refuse_unmeasured(trace.jobs, groups, profiles)
    saving = {name: Checkpoint(restart=each.nature.restart) for name, each in profiles.items()}
    jobs = tuple(replace(job, checkpoint=job.checkpoint or saving[job.application]) for job in trace.jobs)
    if rigid:
        return _rigid(replace(trace, jobs=jobs), groups, profiles)
    jobs = replace(trace, jobs=jobs).elastic(_MOST).jobs
    _refuse_impossible(jobs, groups)
    cluster = Cluster(groups, usual_shapes(groups, _MOST))
    applications = [job.application for job in jobs]

    def world() -> World:
        return GoodputWorld(profiles, applications, cluster)

    return Scene(trace.name, jobs, cluster, world, ADAPTIVE_ROUND, trace.notes)


def _rigid(trace: Trace, groups: tuple[Group, ...], profiles: dict[str, MeasuredApplication]) -> Scene:
    jobs = trace.jobs
    _refuse_impossible(jobs, groups)
    cluster = Cluster(groups, requested_shapes(jobs, groups))
    batches = [
        trace.batch_sizes.get(job.id) or job.least * profiles[job.application].smallest for job in jobs
    ]

    def world() -> World:
        return RigidWorld(profiles, jobs, batches, cluster)

    return Scene(trace.name, jobs, cluster, world, RIGID_ROUND, trace.notes)


def _refuse_unmeasured(
    jobs: Sequence[Job], groups: Sequence[Group], profiles: dict[str, MeasuredApplication]
) -> None:
    kinds = {group.accelerator for group in groups}
    for job in {job.application: job for job in jobs}.values():
        if job.application not in profiles:
            known = did_you_mean(job.application, profiles) or f"; there are {', '.join(profiles)}"
            raise NotFoundError(
                f'job {job.id} says nothing of its length or speed but its application "{job.application}", '
                f"which nobody has measured{known}"
            )
        measured = profiles[job.application].kinds
        if not kinds & set(measured):
            raise BadInputError(
                f"job {job.id} can never run here: {job.application} was measured on {', '.join(measured)}, "
                f"and the cluster has {', '.join(sorted(kinds))}"
            )


def _refuse_impossible(jobs: Sequence[Job], groups: Sequence[Group]) -> None:
    for job in {(job.worker, job.least): job for job in reversed(jobs)}.values():
        sentence = impossible(job, groups)
        if sentence is not None:
            raise BadInputError(f"job {job.id} can never run on this cluster: {sentence}")
