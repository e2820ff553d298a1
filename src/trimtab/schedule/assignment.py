"""One shape for each job, worth the most together, within what every group has: an integer program.

A price on every group's accelerators, CPUs and bytes makes jobs choose alone; the prices at which their
choices just fit bound what any answer can be worth. An answer that fits is made from those choices. Pairs
of job and shape too poor for the difference between bound and answer cannot be in the best one; HiGHS
decides among the rest, from the answer it is given, and within a time limit. So the greedy answer stands in
where time runs out, and large rounds cost hardly more than small ones.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING
from trimtab.schedule.cluster import Cluster, Floats, Ints

_STEPS = 80
_GAP = 1e-4
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What each job is worth in each shape (waiting is worth 0.

    What cannot be, −∞), and what one worker takes.

    Resources are shares of what each group has, in columns: accelerators, CPUs, bytes.
    """

    value: Floats
    workers: Floats
    group: Ints
    demand: Floats
    capacity: Floats

    @staticmethod
    def of(value: Floats, cluster: Cluster, demand: Floats) -> "Problem":
        """The problem of a round.

        Shapes worth no more than waiting, or larger than their group, are left out.
        """
        workers = cluster.shape_workers.astype(float)
        takes = workers[None, :, None] * demand[:, None, :]
        fits = (takes <= cluster.capacity[cluster.shape_group][None] + _SLACK).all(axis=2)
        allowed = np.where(fits & (value > 0), value, -np.inf)
        return Problem(allowed, workers, cluster.shape_group, demand, cluster.capacity)

    def takes(self, job: int, shape: int) -> Floats:
        """What a job would take of the shape's group."""
        taken: Floats = self.demand[job] * self.workers[shape]
        return taken

    def charged(self, prices: Floats) -> Floats:
        """What each job would pay in each shape at these prices."""
        paid: Floats = self.workers * (self.demand @ prices[self.group].T)
        return paid

    def used(self, shape: Ints) -> Floats:
        """What these choices take of every group."""
        used = np.zeros_like(self.capacity)
        rows = np.flatnonzero(shape != WAITING)
        taken = self.demand[rows] * self.workers[shape[rows]][:, None]
        np.add.at(used, self.group[shape[rows]], taken)
        return used

    def worth(self, shape: Ints) -> float:
        """What these choices are worth together."""
        rows = np.flatnonzero(shape != WAITING)
        return float(self.value[rows, shape[rows]].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The shape of each job, the price of every group's resources, and the most any answer could be worth."""

    shape: Ints
    prices: Floats
    worth: float
    bound: float


def assign(problem: Problem, before: Ints | None = None, seconds: float = 1.0) -> Answer:
    """The best choices found in time; `before` is an answer to start from, such as the last round's."""
    if not len(problem.value):
        return Answer(np.empty(0, dtype=np.int64), np.zeros_like(problem.capacity), 0.0, 0.0)
    best = fill(
        problem, np.full(len(problem.value), WAITING, dtype=np.int64), np.zeros_like(problem.capacity)
    )
    if before is not None and (kept := _still_possible(problem, before)) is not None:
        best = max(best, fill(problem, kept, np.zeros_like(problem.capacity)), key=problem.worth)
    prices, bound, best = _priced(problem, best)
    worth = problem.worth(best)
    if bound - worth > _GAP * max(abs(bound), 1e-12) and seconds > 0:
        exact = _exact(problem, prices, bound, best, seconds)
        if exact is not None and problem.worth(exact) > worth:
            best, worth = exact, problem.worth(exact)
    return Answer(best, prices, worth, bound)


def fill(problem: Problem, shape: Ints, prices: Floats) -> Ints:
    """Give what is left to those to whom it is worth most for its price, each the best shape that fits."""
    shape = shape.copy()
    left = problem.capacity - problem.used(shape)
    net = problem.value - problem.charged(prices)
    size = _size(problem)
    for job in np.argsort(-(net / size).max(axis=1), kind="stable"):
        held = shape[job]
        if held != WAITING:
            left[problem.group[held]] += problem.takes(job, held)
        worth = net[job] if prices.any() else problem.value[job]
        room = (problem.demand[job][None, :] * problem.workers[:, None] <= left[problem.group] + _SLACK).all(
            axis=1
        )
        worth = np.where(room, worth, -np.inf)
        choice = int(np.argmax(worth))
        if worth[choice] > 0 and (held == WAITING or problem.value[job, choice] >= problem.value[job, held]):
            shape[job] = choice
        if shape[job] != WAITING:
            left[problem.group[shape[job]]] -= problem.takes(job, int(shape[job]))
    return shape


def _size(problem: Problem) -> Floats:
    """The largest share of its group that a job takes in each shape."""
    capacity = np.maximum(problem.capacity, 1e-12)[problem.group]
    shares = problem.workers[None, :, None] * problem.demand[:, None, :] / capacity[None]
    size: Floats = np.maximum(shares.max(axis=2), 1e-9)
    return size


def _still_possible(problem: Problem, before: Ints) -> Ints | None:
    rows = np.flatnonzero(before != WAITING)
    kept = before.copy()
    gone = rows[np.isneginf(problem.value[rows, before[rows]])]
    kept[gone] = WAITING
    return kept if (problem.used(kept) <= problem.capacity + _SLACK).all() else None


def _priced(problem: Problem, best: Ints) -> tuple[Floats, float, Ints]:
    """Prices at which what everyone wants just fits, found by raising those of what is wanted too much.

    With them comes the bound, and the best answer made on the way.
    """
    capacity = np.maximum(problem.capacity, 1e-12)
    rows = np.arange(len(problem.value))
    prices = np.zeros_like(capacity)
    kept, bound = prices, np.inf
    worth = problem.worth(best)
    eagerness, stalled = 1.0, 0
    for step in range(_STEPS):
        net = problem.value - problem.charged(prices)
        choice = net.argmax(axis=1)
        gain = net[rows, choice]
        wanted = np.where(gain > 0, choice, WAITING)
        total = float(np.maximum(gain, 0.0).sum() + (prices * problem.capacity).sum())
        if total < bound - 1e-9:
            bound, kept, stalled = total, prices, 0
        else:
            stalled += 1
        over = (problem.used(wanted) - problem.capacity) / capacity
        if step % 10 == 9 or (over <= _SLACK).all():
            made = fill(problem, _fitting(problem, wanted, net), prices)
            if problem.worth(made) > worth:
                best, worth = made, problem.worth(made)
        if bound - worth <= _GAP * max(abs(bound), 1e-12) or ((over <= _SLACK).all() and not prices.any()):
            break
        if stalled >= 4:
            eagerness, stalled = eagerness / 2, 0
        slope = np.where((prices <= 0) & (over < 0), 0.0, over)
        length = float((slope**2).sum())
        if length == 0:
            break
        prices = np.maximum(0.0, prices + eagerness * (total - worth) / length * slope / capacity)
    return kept, bound, best


def _fitting(problem: Problem, wanted: Ints, net: Floats) -> Ints:
    """What everyone wants, less those who gain least from it in groups that do not have enough."""
    shape = wanted.copy()
    left = problem.capacity - problem.used(shape)
    rows = np.flatnonzero(shape != WAITING)
    for job in rows[np.argsort(net[rows, shape[rows]], kind="stable")]:
        group = problem.group[shape[job]]
        if (left[group] < -_SLACK).any():
            left[group] += problem.takes(int(job), int(shape[job]))
            shape[job] = WAITING
    return shape


def _exact(problem: Problem, prices: Floats, bound: float, start: Ints, seconds: float) -> Ints | None:
    """The best choices HiGHS finds in time; None where it finds none."""
    import highspy

    net = problem.value - problem.charged(prices)
    short = np.maximum(net.max(axis=1), 0.0)[:, None] - net
    possible = short <= bound - problem.worth(start) + 1e-9
    begun = np.flatnonzero(start != WAITING)
    possible[begun, start[begun]] = True
    job, shape = np.nonzero(possible)
    count, jobs, (groups, resources) = len(job), len(problem.value), problem.capacity.shape
    takes = problem.demand[job] * problem.workers[shape][:, None]
    column = np.concatenate((np.arange(count), np.repeat(np.arange(count), resources)))
    limits = problem.group[shape][:, None] * resources + np.arange(resources)
    row = np.concatenate((job, jobs + limits.ravel()))
    value = np.concatenate((np.ones(count), takes.ravel()))
    order = np.argsort(column, kind="stable")
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, jobs + groups * resources
    model.col_cost_ = -problem.value[job, shape]
    model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate((np.ones(jobs), problem.capacity.ravel()))
    model.integrality_ = [highspy.HighsVarType.kInteger] * count
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=count))))
    model.a_matrix_.index_, model.a_matrix_.value_ = row[order], value[order]
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    settings = {"output_flag": False, "time_limit": seconds, "mip_rel_gap": _GAP, "threads": 1}
    for name, setting in settings.items():
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    guess = highspy.HighsSolution()
    guess.col_value = (start[job] == shape).astype(float).tolist()
    solver.setSolution(guess)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    chosen = np.array(solver.getSolution().col_value) > 0.5
    found = np.full(jobs, WAITING, dtype=np.int64)
    found[job[chosen]] = shape[chosen]
    return found
