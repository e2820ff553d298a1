"""The rule from one run of a stage to its resource request.

CPU: the 95 % quantile over time plus headroom, at most the peak. A request is no limit, so short peaks use
idle cores. Memory: request and limit are the peak plus a margin, because a stage that exceeds its limit is
killed. Accelerators: only those that the user or the file requests.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import mul

from trimtab.core import (
    Answer,
    BadInputError,
    Clock,
    Decision,
    Estimate,
    Profile,
    RealClock,
    Scalar,
    format_bytes,
    format_duration,
)
from trimtab.pipelines.pipeline import Pipeline, PipelineStage, ResourceRequest
from trimtab.pipelines.quantity import (
    LEAST_CPU,
    LEAST_MEMORY,
    device_resource,
    format_cpu,
    format_memory,
    round_up_cpu,
    round_up_memory,
)
from trimtab.pipelines.running import waiting

RULE = "rule:p95-cpu-and-peak-memory"
_ENOUGH_OF_CPU = 0.95  # of the time
_FEW_SAMPLES = 5
# Coverage when the same stage runs again on the same machine: memory within the margin on either side; time
# from a third to three times, because the machine may have other load in either run.
_MEMORY_COVERAGE = 0.9
_TIME_COVERAGE = 0.8
_CROWDED = 3.0
_ALL_CORES = 0.9  # share of the machine's cores; a stage that used it might use more elsewhere


@dataclass(frozen=True, slots=True)
class SizingRule:
    """`headroom` is a share of CPU on top; `margin` a share of memory, also the width of its interval."""

    headroom: float = 0.15
    margin: float = 0.25

    def __post_init__(self) -> None:
        for name, value in (("headroom", self.headroom), ("margin", self.margin)):
            if not 0 <= value <= 10:
                raise BadInputError(f"--{name} is {value:g}; it should be a share such as 0.25, from 0 to 10")


@dataclass(frozen=True, slots=True)
class Use:
    """Resource use of a stage's run: seconds, cores, bytes. `cpu_enough` is the 95 % quantile over time."""

    seconds: float
    cpu_peak: float
    cpu_mean: float
    cpu_enough: float
    memory_peak: float


@dataclass(frozen=True, slots=True)
class Sized:
    """A stage, its resource use, its new request, and the reason."""

    stage: PipelineStage
    profile: Profile
    use: Use
    request: ResourceRequest
    time: Estimate
    memory: Estimate
    reason: str


def size(
    pipeline: Pipeline,
    profiles: Mapping[str, Profile],
    accelerators: Mapping[str, tuple[str, int]] | None = None,
    rule: SizingRule | None = None,
) -> tuple[Sized, ...]:
    """Every stage's size, from its profile. `accelerators`: by stage, the user's kind and number."""
    requested = accelerators or {}
    for name, (kind, count) in requested.items():
        pipeline.stage(name)
        if count and pipeline.format != "pipeline":
            device_resource(kind)
    sized = [
        _sized(stage, profiles[stage.name], requested.get(stage.name), rule or SizingRule())
        for stage in pipeline.stages
    ]
    return _alike_in_one_place(sized)


def use_of(profile: Profile) -> Use:
    """Resource use of a profile's series."""
    series = profile.series
    widths = [after - before for before, after in pairwise((0.0, *series.time))]
    weighted = list(zip(series.cpu, widths, strict=True))
    total, peak = sum(widths), max(series.cpu, default=0.0)
    enough, remaining = peak, _ENOUGH_OF_CPU * total
    for cores, width in sorted(weighted):
        remaining -= width
        if remaining <= 1e-9:
            enough = cores
            break
    return Use(
        seconds=profile.window,
        cpu_peak=peak,
        cpu_mean=sum(cpu * width for cpu, width in weighted) / total if total else 0.0,
        cpu_enough=enough,
        memory_peak=max(series.memory, default=0.0),
    )


def _sized(
    stage: PipelineStage, profile: Profile, requested: tuple[str, int] | None, rule: SizingRule
) -> Sized:
    use = use_of(profile)
    request = ResourceRequest(
        cpu=round_up_cpu(min(use.cpu_enough * (1 + rule.headroom), use.cpu_peak)),
        memory=round_up_memory(use.memory_peak * (1 + rule.margin)),
        accelerator=requested[0] if requested else "",
        accelerators=requested[1] if requested else None,
    )
    reasons = (
        _cpu_reason(use, request, profile, rule),
        _memory_reason(use, request, profile, rule),
        _accelerator_reason(stage, profile, requested),
    )
    return Sized(
        stage=stage,
        profile=profile,
        use=use,
        request=request,
        time=Estimate(use.seconds, use.seconds / _CROWDED, use.seconds * _CROWDED, _TIME_COVERAGE, "s"),
        memory=Estimate(
            use.memory_peak,
            use.memory_peak / (1 + rule.margin),
            use.memory_peak * (1 + rule.margin),
            _MEMORY_COVERAGE,
            "B",
        ),
        reason="; ".join(reasons),
    )


def _cpu_reason(use: Use, request: ResourceRequest, profile: Profile, rule: SizingRule) -> str:
    reason = (
        f"CPU {format_cpu(request.cpu)}: {use.cpu_enough:.2f} cores were enough for 95 % of"
        f" {format_duration(use.seconds)}, plus {rule.headroom:.0%} but no more than the peak of"
        f" {use.cpu_peak:.2f}"
    )
    if request.cpu == LEAST_CPU:
        reason += ", rounded up to the smallest request"
    if use.cpu_enough >= _ALL_CORES * profile.host.cores:
        reason += f"; it used all {profile.host.cores:.3g} cores of this machine and might use more"
    if waiting(profile):
        reason += f"; {waiting(profile)} in all, which counts as use; with more free cores it ends sooner"
    return reason


def _memory_reason(use: Use, request: ResourceRequest, profile: Profile, rule: SizingRule) -> str:
    peak = format_bytes(use.memory_peak)
    reason = f"memory {format_memory(request.memory)}: the peak was {peak}, plus {rule.margin:.0%}"
    if request.memory == LEAST_MEMORY:
        reason += ", rounded up to the smallest request"
    if len(profile.series.memory) < _FEW_SAMPLES:
        samples = len(profile.series.memory)
        reason += f"; the run was so short that memory was sampled {samples} times, so a peak may be missed"
    return reason


def _accelerator_reason(stage: PipelineStage, profile: Profile, requested: tuple[str, int] | None) -> str:
    trains = profile.model is not None and profile.model.optimizer is not None
    kind, count = requested or (stage.current.accelerator, stage.current.accelerators)
    if count:
        source = "you request it" if requested is not None else "the file requests it"
        reason = f"{count} × {kind}, because {source}"
        if not trains:
            return f"{reason}; the profile shows no PyTorch training, so check that it is used"
        return f"{reason}{_device_need(profile, kind)}"
    if requested is not None:
        return "no accelerator, because you request none"
    if not trains or profile.model is None:
        return "no accelerator: none is requested"
    return (
        f"no accelerator: it trains a PyTorch model of {profile.model.parameters:,} parameters, but none is"
        f" requested (--accelerator {stage.name}=T4:1 would)"
    )


def _device_need(profile: Profile, kind: str) -> str:
    """Sentence on the device memory that training takes: weights, gradients, optimizer state, activations."""
    from trimtab.catalog import find_accelerator

    model, device = profile.model, find_accelerator(kind)
    if model is None or device is None:
        return ""
    batch = profile.steps.batch_size if profile.steps else 1
    need = 2 * model.parameter_bytes + model.buffer_bytes + model.optimizer_state_bytes
    need += model.saved_fixed_bytes + batch * model.saved_sample_bytes
    fits = "of" if need <= device.memory else "which is more than"
    return (
        f"; its model, gradients, optimizer state and activations take about {format_bytes(need)}"
        f" {fits} the {format_bytes(device.memory)} of each"
    )


def _alike_in_one_place(sized: Sequence[Sized]) -> tuple[Sized, ...]:
    """Tasks that share one container in the file get the largest of their requests."""
    together: dict[object, list[Sized]] = {}
    for stage in sized:
        together.setdefault(stage.stage.place, []).append(stage)

    def shared(stage: Sized) -> Sized:
        group = together[stage.stage.place]
        if len(group) == 1:
            return stage
        most = max(group, key=lambda other: other.request.accelerators or 0).request
        cpu = max(other.request.cpu for other in group)
        memory = max(other.request.memory for other in group)
        names = ", ".join(other.stage.name for other in group)
        reason = f"{stage.reason}; {names} share one container, so the largest request counts"
        return replace(stage, request=replace(most, cpu=cpu, memory=memory), reason=reason)

    return tuple(shared(stage) for stage in sized)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Core-seconds and byte-seconds over all stages, each for the time of its run."""

    core_seconds: float
    byte_seconds: float


def reserved_ways(sized: Sequence[Sized]) -> dict[str, Reserved]:
    """Reservations by the way of sizing; the file's only if every stage requests CPU and memory."""
    seconds = [stage.use.seconds for stage in sized]

    def reserved(cpu: Sequence[float], memory: Sequence[float]) -> Reserved:
        return Reserved(sum(map(mul, cpu, seconds)), sum(map(mul, memory, seconds)))

    cpu, memory = [stage.request.cpu for stage in sized], [stage.request.memory for stage in sized]
    file_cpu = [stage.stage.current.cpu for stage in sized if stage.stage.current.cpu is not None]
    file_memory = [stage.stage.current.memory for stage in sized if stage.stage.current.memory is not None]
    complete = len(file_cpu) == len(file_memory) == len(sized)
    return {
        **({"as the file requests": reserved(file_cpu, file_memory)} if complete else {}),
        "one size for all": reserved([max(cpu)] * len(sized), [max(memory)] * len(sized)),
        "each its own": reserved(cpu, memory),
    }


def stage_decision(pipeline: str, sized: Sized, clock: Clock | None = None) -> Decision:
    """One stage's decision; the request in its file is the alternative."""
    request, current = sized.request, sized.stage.current
    kept = request.accelerators is None
    action: dict[str, Scalar] = {
        "cpu": request.cpu,
        "memory": int(request.memory),
        "accelerator": (current.accelerator if kept else request.accelerator) or None,
        "accelerators": current.accelerators if kept else request.accelerators,
    }
    before: dict[str, Scalar] = {
        "cpu": current.cpu,
        "memory": None if current.memory is None else int(current.memory),
        "accelerator": current.accelerator or None,
        "accelerators": current.accelerators,
    }
    estimates = {"time": sized.time, "memory": sized.memory}
    requested = current.cpu is not None or current.memory is not None
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="pipeline",
        subject=f"{pipeline}/{sized.stage.name}",
        action=action,
        estimates=estimates,
        chosen_by=RULE,
        rule=Answer(RULE, action, estimates),
        model=None,
        alternatives=(Answer("file", before),) if requested else (),
        reason=sized.reason,
    )
