"""One shape for each job, worth the most together, within what every group has: an integer program.

Rows say that a job has at most one shape and that a group's accelerators, CPUs and bytes are not given
twice. HiGHS starts from the last round's answer and has a time limit; what it has by then, or the greedy
answer if that is better, is taken.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING
from trimtab.schedule.cluster import Cluster, Floats, Ints

_GAP = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What may be chosen: pairs of a job and a shape, what each is worth and takes of which group."""

    jobs: int
    job: Ints
    shape: Ints
    value: Floats
    group: Ints
    takes: Floats
    capacity: Floats

    @staticmethod
    def of(value: Floats, cluster: Cluster, demand: Floats) -> "Choices":
        """All pairs worth more than waiting; `value` is (jobs, shapes), `demand` that of one worker."""
        job, shape = np.nonzero(value > 0)
        takes = demand[job] * cluster.shape_workers[shape][:, None]
        group = cluster.shape_group[shape]
        fits = (takes <= cluster.capacity[group] + 1e-9).all(axis=1)
        job, shape = job[fits], shape[fits]
        return Choices(len(value), job, shape, value[job, shape], group[fits], takes[fits], cluster.capacity)


def assign(choices: Choices, before: Ints | None = None, seconds: float = 1.0) -> Ints:
    """The shape of each job, WAITING for those that get none; `before` is an answer to start from."""
    rough = greedy(choices)
    exact = _highs(choices, rough if before is None else _better(choices, rough, before), seconds)
    if exact is None or _worth(choices, exact) < _worth(choices, rough):
        exact = rough
    shape = np.full(choices.jobs, WAITING, dtype=np.int64)
    shape[choices.job[exact]] = choices.shape[exact]
    return shape


def greedy(choices: Choices) -> Ints:
    """Pairs by value for what they take; a job's pair gives way to one worth more while there is room."""
    left = choices.capacity.copy()
    total = np.maximum(choices.capacity.sum(axis=0), 1e-12)
    size = (choices.takes / total).max(axis=1)
    chosen = np.full(choices.jobs, -1, dtype=np.int64)
    for pair in np.argsort(-choices.value / np.maximum(size, 1e-12), kind="stable"):
        job, group = choices.job[pair], choices.group[pair]
        held = chosen[job]
        if held >= 0:
            if choices.value[pair] <= choices.value[held]:
                continue
            left[choices.group[held]] += choices.takes[held]
        if (choices.takes[pair] <= left[group] + 1e-9).all():
            left[group] -= choices.takes[pair]
            chosen[job] = pair
        elif held >= 0:
            left[choices.group[held]] -= choices.takes[held]
    return chosen[chosen >= 0]


def _better(choices: Choices, rough: Ints, before: Ints) -> Ints:
    """The last round's answer where it is still possible and worth more."""
    kept = np.flatnonzero(before[choices.job] == choices.shape)
    used = np.zeros_like(choices.capacity)
    np.add.at(used, choices.group[kept], choices.takes[kept])
    if (used > choices.capacity + 1e-9).any() or _worth(choices, kept) < _worth(choices, rough):
        return rough
    return kept


def _worth(choices: Choices, pairs: Ints) -> float:
    return float(choices.value[pairs].sum())


def _highs(choices: Choices, start: Ints, seconds: float) -> Ints | None:
    """The best pairs HiGHS finds in time; None where it finds none."""
    import highspy

    count = len(choices.job)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    binding = [
        (group, resource)
        for group in range(len(choices.capacity))
        for resource in range(choices.capacity.shape[1])
        if _could_bind(choices, group, resource)
    ]
    model = highspy.HighsLp()
    model.num_col_ = count
    model.num_row_ = choices.jobs + len(binding)
    model.col_cost_ = -choices.value
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.ones(count)
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    limits = [choices.capacity[group, resource] for group, resource in binding]
    model.row_upper_ = np.concatenate((np.ones(choices.jobs), limits))
    model.integrality_ = [highspy.HighsVarType.kInteger] * count
    columns = [np.arange(count)]
    rows = [choices.job]
    values = [np.ones(count)]
    for number, (group, resource) in enumerate(binding):
        inside = np.flatnonzero((choices.group == group) & (choices.takes[:, resource] > 0))
        columns.append(inside)
        rows.append(np.full(len(inside), choices.jobs + number))
        values.append(choices.takes[inside, resource])
    column, row, value = np.concatenate(columns), np.concatenate(rows), np.concatenate(values)
    order = np.argsort(column, kind="stable")
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=count))))
    model.a_matrix_.index_ = row[order]
    model.a_matrix_.value_ = value[order]
    solver = highspy.Highs()
    for name, setting in (
        ("output_flag", False),
        ("time_limit", seconds),
        ("mip_rel_gap", _GAP),
        ("threads", 1),
    ):
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    guess = highspy.HighsSolution()
    ones = np.zeros(count)
    ones[start] = 1.0
    guess.col_value = ones.tolist()
    solver.setSolution(guess)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.flatnonzero(np.array(solver.getSolution().col_value) > 0.5)


def _could_bind(choices: Choices, group: int, resource: int) -> bool:
    inside = choices.group == group
    if not inside.any():
        return False
    largest = np.zeros(choices.jobs)
    np.maximum.at(largest, choices.job[inside], choices.takes[inside, resource])
    return bool(largest.sum() > choices.capacity[group, resource])
