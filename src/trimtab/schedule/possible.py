"""Whether a fleet could ever run a job, and what it could run instead."""

from collections.abc import Sequence

from trimtab.core import BadInputError, format_bytes
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job, Worker

_SLACK = 1e-9


def accepts(worker: Worker, group: Group) -> bool:
    """Whether nodes of a group are of a kind that will do; one without accelerators can run anywhere."""
    if worker.gpus == 0:
        return True
    return group.gpus > 0 and (not worker.accelerators or group.accelerator in worker.accelerators)


def largest_gang(worker: Worker, group: Group) -> int:
    """How many such workers all nodes of a group hold when they are empty."""
    return group.nodes * _on_one_node(worker, group) if accepts(worker, group) else 0


def impossible(job: Job, groups: Sequence[Group]) -> str | None:
    """Why these groups can never run a job, and what they could run; None where they can."""
    if any(largest_gang(job.worker, group) >= job.least for group in groups):
        return None
    if not groups:
        return "no nodes are known"
    asked = job.worker
    best = {
        kind: max(largest_gang(_of_any_kind(asked), g) for g in groups if g.accelerator == kind)
        for kind in dict.fromkeys(group.accelerator for group in groups)
    }
    if asked.gpus == 0:
        most = max(best.values())
        words = f"{_many(job.least, 'worker')} with {_rest(asked)} each asked"
        return f"{words}; the largest this fleet can give is {most}" if most else _too_large(asked, groups)
    wanted = " or ".join(asked.accelerators) or "accelerators"
    given = {kind: count * asked.gpus for kind, count in best.items() if kind and count}
    if not given:
        return _too_large(asked, groups)
    shown = ", or ".join(f"{count:g} {kind}" for kind, count in sorted(given.items()))
    return f"{job.least * asked.gpus:g} {wanted} asked; the largest this fleet can give is {shown}"


def refuse_impossible(job: Job, groups: Sequence[Group]) -> None:
    """Raise where the fleet can never run it."""
    sentence = impossible(job, groups)
    if sentence is not None:
        raise BadInputError(f'the job "{job.workload.name}" is impossible here: {sentence}')


def _of_any_kind(worker: Worker) -> Worker:
    return Worker(worker.gpus, worker.cpus, worker.memory)


def _on_one_node(worker: Worker, group: Group) -> int:
    rooms = [(10**9)]
    if worker.gpus >= 1:
        rooms.append(int(group.gpus / worker.gpus + _SLACK))
    elif worker.gpus > 0:
        rooms.append(group.gpus * int(1 / worker.gpus + _SLACK))
    if worker.cpus > 0:
        rooms.append(int(group.cpus / worker.cpus + _SLACK))
    if worker.memory > 0:
        rooms.append(int(group.memory / worker.memory + _SLACK))
    return min(rooms)


def _too_large(worker: Worker, groups: Sequence[Group]) -> str:
    largest = ", or ".join(
        f"{f'{group.gpus} {group.accelerator}, ' if group.gpus else ''}{_many(group.cpus, 'CPU')} and"
        f" {format_bytes(group.memory)}"
        for group in groups
    )
    gpus = f"{_many(worker.gpus, 'accelerator')}, " if worker.gpus else ""
    return f"a worker with {gpus}{_rest(worker)} asked; a node here has {largest}"


def _rest(worker: Worker) -> str:
    memory = f" and {format_bytes(worker.memory)}" if worker.memory else ""
    return f"{_many(worker.cpus, 'CPU')}{memory}"


def _many(count: float, what: str) -> str:
    return f"{count:g} {what}{'' if count == 1 else 's'}"
