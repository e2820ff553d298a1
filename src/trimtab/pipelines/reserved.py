"""What a pipeline keeps from others while it runs: cores and bytes times seconds, however it is sized."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.pipelines.sizing import Sized


@dataclass(frozen=True, slots=True)
class Reserved:
    """Core-seconds and byte-seconds over all stages, each for as long as it ran."""

    core_seconds: float
    byte_seconds: float


def reserved_ways(sized: Sequence[Sized]) -> dict[str, Reserved]:
    """What the pipeline reserves, by the way it is sized, in words."""
    before = reserved_before(sized)
    asked = {"as the file asked": before} if before is not None else {}
    return {**asked, "one size for all": reserved_alike(sized), "each its own": reserved_each(sized)}


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
    """As the file asked; None where a stage did not ask for both CPU and memory."""
    cpu, memory = 0.0, 0.0
    for each in sized:
        asked = each.stage.asked
        if asked.cpu is None or asked.memory is None:
            return None
        cpu += asked.cpu * each.use.seconds
        memory += asked.memory * each.use.seconds
    return Reserved(cpu, memory)
