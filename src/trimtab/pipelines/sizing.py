"""The rule that turns one run of a stage into what the stage should ask for.

CPU: what was enough for 95 % of the time, and headroom up to the peak. A request is no limit, so short peaks
are served from what others leave. Memory: request and limit are the peak times a margin, because a stage that
needs more than its limit is killed. Accelerators: only those that somebody asked for.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

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
# How often the same stage, run again on the same machine, stays within the stated range: of memory the margin
# on either side; of time a third to three times, because others may crowd the machine now or then.
_MEMORY_COVERAGE = 0.9
_TIME_COVERAGE = 0.8
_CROWDED = 3.0
_ALL_CORES = 0.9  # of the machine's; a stage that used so much might have used more elsewhere


@dataclass(frozen=True, slots=True)
class SizingRule:
    """`headroom` is a share of CPU on top; `margin` a share of memory, which also bounds the stated range."""

    headroom: float = 0.15
    margin: float = 0.25

    def __post_init__(self) -> None:
        for name, value in (("headroom", self.headroom), ("margin", self.margin)):
            if not 0 <= value <= 10:
                raise BadInputError(f"--{name} is {value:g}; it should be a share such as 0.25, from 0 to 10")


@dataclass(frozen=True, slots=True)
class Use:
    """Use of one run of a stage: seconds, cores, bytes. `cpu_enough` was enough for 95 % of the time."""

    seconds: float
    cpu_peak: float
    cpu_mean: float
    cpu_enough: float
    memory_peak: float


@dataclass(frozen=True, slots=True)
class Sized:
    """A stage, what its run used and what it should ask for, with the reason."""

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
    """Every stage's size, from its profile. `accelerators`: by stage, kind and number that the user wants."""
    wanted = accelerators or {}
    for name, (kind, count) in wanted.items():
        pipeline.stage(name)
        if count and pipeline.format != "pipeline":
            device_resource(kind)
    sized = [
        _sized(stage, profiles[stage.name], wanted.get(stage.name), rule or SizingRule())
        for stage in pipeline.stages
    ]
    return _alike_in_one_place(sized)


def use_of(profile: Profile) -> Use:
    """Resource use summed up from a profile's series."""
    series = profile.series
    widths = [after - before for before, after in pairwise((0.0, *series.time))]
    whole = sum(widths)
    mean = sum(cpu * width for cpu, width in zip(series.cpu, widths, strict=True)) / whole if whole else 0.0
    return Use(
        seconds=profile.window,
        cpu_peak=max(series.cpu, default=0.0),
        cpu_mean=mean,
        cpu_enough=_enough(series.cpu, widths),
        memory_peak=max(series.memory, default=0.0),
    )


def _enough(cpu: Sequence[float], widths: Sequence[float]) -> float:
    """The least number of cores that was not exceeded for 95 % of the time."""
    left = _ENOUGH_OF_CPU * sum(widths)
    for cores, width in sorted(zip(cpu, widths, strict=True)):
        left -= width
        if left <= 1e-9:
            return cores
    return max(cpu, default=0.0)


def _sized(stage: PipelineStage, profile: Profile, wanted: tuple[str, int] | None, rule: SizingRule) -> Sized:
    use = use_of(profile)
    request = ResourceRequest(
        cpu=round_up_cpu(min(use.cpu_enough * (1 + rule.headroom), use.cpu_peak)),
        memory=round_up_memory(use.memory_peak * (1 + rule.margin)),
        accelerator=wanted[0] if wanted else "",
        accelerators=wanted[1] if wanted else None,
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
        reason="; ".join(
            (_cpu_reason(use, request, profile, rule), _memory_reason(use, request, profile, rule))
        )
        + f"; {_accelerator_reason(stage, profile, wanted)}",
    )


def _cpu_reason(use: Use, request: ResourceRequest, profile: Profile, rule: SizingRule) -> str:
    reason = (
        f"CPU {format_cpu(request.cpu)}: {use.cpu_enough:.2f} cores were enough for 95 % of"
        f" {format_duration(use.seconds)}, plus {rule.headroom:.0%} but no more than the peak of"
        f" {use.cpu_peak:.2f}"
    )
    if request.cpu == LEAST_CPU:
        reason += ", and less than this is not asked for"
    if use.cpu_enough >= _ALL_CORES * profile.host.cores:
        reason += f"; it took all {profile.host.cores:.3g} cores there were, and might take more"
    if waiting(profile):
        reason += f"; {waiting(profile)} in all, which counts as use; with more cores free it ends sooner"
    return reason


def _memory_reason(use: Use, request: ResourceRequest, profile: Profile, rule: SizingRule) -> str:
    peak = format_bytes(use.memory_peak)
    reason = f"memory {format_memory(request.memory)}: the peak was {peak}, plus {rule.margin:.0%}"
    if request.memory == LEAST_MEMORY:
        reason += ", and less than this is not asked for"
    if len(profile.series.memory) < _FEW_SAMPLES:
        seen = len(profile.series.memory)
        reason += f"; the run was so short that memory was seen {seen} times, so a peak may have been missed"
    return reason


def _accelerator_reason(stage: PipelineStage, profile: Profile, wanted: tuple[str, int] | None) -> str:
    trains = profile.model is not None and profile.model.optimizer is not None
    kind, count = wanted if wanted is not None else (stage.current.accelerator, stage.current.accelerators)
    if count:
        who = "you ask for it" if wanted is not None else "the file asks for it"
        reason = f"{count} × {kind}, because {who}"
        if not trains:
            return f"{reason}; no PyTorch training was seen in the profile, so check that it is of use"
        return f"{reason}{_device_need(profile, kind)}"
    if wanted is not None:
        return "no accelerator, because you say so"
    if not trains or profile.model is None:
        return "no accelerator: none is asked for"
    return (
        f"no accelerator: it trains a PyTorch model of {profile.model.parameters:,} parameters, but none is"
        f" asked for (--accelerator {stage.name}=T4:1 would)"
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
    """Tasks that share one container in the file share its request: the largest of theirs."""
    together: dict[object, list[Sized]] = {}
    for each in sized:
        together.setdefault(each.stage.place, []).append(each)

    def shared(each: Sized) -> Sized:
        group = together[each.stage.place]
        if len(group) == 1:
            return each
        most = max(group, key=lambda other: other.request.accelerators or 0).request
        request = ResourceRequest(
            max(other.request.cpu for other in group),
            max(other.request.memory for other in group),
            most.accelerator,
            most.accelerators,
        )
        names = ", ".join(other.stage.name for other in group)
        return replace(
            each, request=request, reason=f"{each.reason}; {names} share one container, so the largest holds"
        )

    return tuple(shared(each) for each in sized)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Core-seconds and byte-seconds over all stages, each for as long as it ran."""

    core_seconds: float
    byte_seconds: float


def reserved_ways(sized: Sequence[Sized]) -> dict[str, Reserved]:
    """Reservations of the pipeline, by the way it is sized, in words."""
    before = reserved_before(sized)
    file = {"as the file asked": before} if before is not None else {}
    return {**file, "one size for all": reserved_alike(sized), "each its own": reserved_each(sized)}


def reserved_each(sized: Sequence[Sized]) -> Reserved:
    """Every stage with a request of its own."""
    return Reserved(
        sum(each.request.cpu * each.use.seconds for each in sized),
        sum(each.request.memory * each.use.seconds for each in sized),
    )


def reserved_alike(sized: Sequence[Sized]) -> Reserved:
    """One size for all stages, large enough for the largest."""
    seconds = sum(each.use.seconds for each in sized)
    return Reserved(
        max(each.request.cpu for each in sized) * seconds,
        max(each.request.memory for each in sized) * seconds,
    )


def reserved_before(sized: Sequence[Sized]) -> Reserved | None:
    """Reservation as the file requests; None where a stage did not ask for both CPU and memory."""
    cpu, memory = 0.0, 0.0
    for each in sized:
        current = each.stage.current
        if current.cpu is None or current.memory is None:
            return None
        cpu += current.cpu * each.use.seconds
        memory += current.memory * each.use.seconds
    return Reserved(cpu, memory)


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
