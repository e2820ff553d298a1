"""One shape for each job, worth the most together, within what every group has: an integer program.

A price on every group's accelerators, CPUs and bytes makes jobs choose alone; the prices at which their
choices just fit bound what any answer can be worth. An answer that fits is made from those choices. Pairs
of job and shape too poor for the difference between bound and answer cannot be in the best one; HiGHS
decides among the rest, from the answer it is given, and within a time limit. So the greedy answer stands in
where time runs out, and large rounds cost hardly more than small ones.
"""

from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from trimtab.schedule.allocation import WAITING, Bools
from trimtab.schedule.cluster import Cluster, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Rows: whose a choice is, what it is worth, and what it takes of which group; (choices, resources)."""

    owner: Ints
    worth: Floats
    group: Ints
    takes: Floats


def choose(choices: Choices, capacity: Floats, start: Bools, seconds: float, gap: float) -> Bools | None:
    """The best choices found in time, from those of `start`; None where none are found.

    `gap` is by which share of their worth better ones may be left unfound.
    """
    import highspy

    count, owners, (groups, resources) = len(choices.owner), int(choices.owner.max()) + 1, capacity.shape
    takes, limits = _scaled(choices, capacity)
    column = np.concatenate((np.arange(count), np.repeat(np.arange(count), resources)))
    row = np.concatenate(
        (choices.owner, owners + (choices.group[:, None] * resources + np.arange(resources)).ravel())
    )
    entries = np.concatenate((np.ones(count), takes.ravel()))
    order = np.argsort(column, kind="stable")
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, owners + groups * resources
    model.col_cost_ = -choices.worth
    model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate((np.ones(owners), limits.ravel()))
    model.integrality_ = [highspy.HighsVarType.kInteger] * count
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(count + 1) * (1 + resources)
    model.a_matrix_.index_, model.a_matrix_.value_ = row[order], entries[order]
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    settings = {
        "output_flag": False,
        "time_limit": seconds,
        "mip_rel_gap": gap,
        "threads": 1,
        # It looks for a first answer, for longer than all the rest takes; there is one already.
        "mip_heuristic_run_feasibility_jump": False,
    }
    for name, setting in settings.items():
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    guess = highspy.HighsSolution()
    guess.col_value = start.astype(float).tolist()
    solver.setSolution(guess)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(solver.getSolution().col_value) > 0.5


def _scaled(choices: Choices, capacity: Floats) -> tuple[Floats, Floats]:
    """Demand and capacity in units of the smallest demand: solvers do not like bytes."""
    least = np.array([row[row > 0].min(initial=np.inf) for row in choices.takes.T])
    unit = np.where(np.isfinite(least), least, 1.0)
    return choices.takes / unit, capacity / unit


_STEPS = 80
_TIRED = 1 / 64  # of the first step; smaller ones hardly change prices any more
_GAP = 1e-4
_SLACK = 1e-9
_EASING = (1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.3, 0.0)  # parts of the prices at which what is left is given
_PAIRS_PER_SECOND = 50_000  # of which HiGHS can make something; it does not stop while it prepares more


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentProblem:
    """Value of each job in each shape, (jobs, shapes): waiting is worth 0, an impossible shape −∞.

    `demand` is what one worker of each job takes, `capacity` what each group has; their columns are
    resources, such as accelerators, CPUs and bytes.
    """

    value: Floats
    workers: Floats
    group: Ints
    demand: Floats
    capacity: Floats

    @staticmethod
    def of(
        value: Floats, cluster: Cluster, demand: Floats, pinned: Ints | None = None
    ) -> "AssignmentProblem":
        """The problem of a round, without shapes worth no more than waiting or larger than their group.

        Jobs with a shape in `pinned` keep it: they choose nothing, and what they take is gone.
        """
        workers = cluster.shape_workers.astype(float)
        takes = workers[None, :, None] * demand[:, None, :]
        fits = (takes <= _limit(cluster.capacity)[cluster.shape_group][None]).all(axis=2)
        allowed = np.where(fits & (value > 0), value, -np.inf)
        problem = AssignmentProblem(allowed, workers, cluster.shape_group, demand, cluster.capacity)
        if pinned is None or (pinned == WAITING).all():
            return problem
        allowed[pinned != WAITING] = -np.inf
        return replace(problem, capacity=np.maximum(cluster.capacity - problem.used(pinned), 0.0))

    def gains(self, prices: Floats, out: Floats | None = None) -> Floats:
        """Value of each shape to each job minus its price.

        `out` takes the answer: large columns made anew at each step cost more than what is in them.
        """
        # Not a product of matrices: threads would only get in each other's way here.
        gains: Floats = np.einsum("jr,sr->js", self.demand, prices[self.group], out=out)
        gains *= self.workers
        return np.subtract(self.value, gains, out=gains)

    def used(self, shape: Ints) -> Floats:
        """Resources of every group that these choices take."""
        rows = np.flatnonzero(shape != WAITING)
        chosen = shape[rows]
        group, workers = self.group[chosen], self.workers[chosen]
        used = np.zeros_like(self.capacity)
        for resource, demand in enumerate(self.demand[rows].T):
            used[:, resource] = np.bincount(group, workers * demand, len(used))
        return used

    def fits(self, shape: Ints) -> bool:
        """Whether every group has what these choices take."""
        return bool((self.used(shape) <= _limit(self.capacity)).all())

    def worth(self, shape: Ints) -> float:
        """Total value of these choices."""
        rows = np.flatnonzero(shape != WAITING)
        return float(self.value[rows, shape[rows]].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The shape of each job, the price of every group's resources, and the most any answer could be worth."""

    shape: Ints
    prices: Floats
    worth: float
    bound: float


def assign(
    problem: AssignmentProblem, before: Ints | None = None, seconds: float = 1.0, loyalty: float = 0.0
) -> Assignment:
    """The best choices found in time; `before` is an answer to start from, such as the last round's.

    If what is made of `before` is worth as much but for a share `loyalty`, that is taken: it changes less.
    """
    begun = monotonic()
    prices = np.zeros_like(problem.capacity)
    if not len(problem.value):
        return Assignment(np.empty(0, dtype=np.int64), prices, 0.0, 0.0)
    steady = None if before is None else _made_fuller(problem, before)
    first = _first(problem, steady)
    scarce = _scarce(problem)
    problem = replace(problem, demand=problem.demand[:, scarce], capacity=problem.capacity[:, scarce])
    charged, bound, best = _priced(problem, first)
    prices[:, scarce] = charged
    if steady is None or problem.worth(steady) < (1.0 - loyalty) * bound:
        best = _improved(problem, charged, bound, best, begun + seconds)
    if steady is not None and problem.worth(steady) >= (1.0 - loyalty) * problem.worth(best):
        best = steady
    return Assignment(best, prices, problem.worth(best), bound)


def _limit(capacity: Floats) -> Floats:
    """Capacity with a tolerance: sums of shares are not exact."""
    limit: Floats = capacity * (1.0 + _SLACK)
    return limit


def _tolerance(bound: float) -> float:
    """By how much less than the bound an answer may be worth and still be taken for the best."""
    return _GAP * max(abs(bound), 1e-12)


def _scarce(problem: AssignmentProblem) -> Ints:
    """The resources of which more might be wanted than there is; the others bind nobody."""
    wanted = np.zeros_like(problem.capacity)
    for group in range(len(wanted)):
        here = np.flatnonzero(problem.group == group)
        possible = np.isfinite(problem.value[:, here])
        most = np.where(possible, problem.workers[here], 0.0).max(axis=1, initial=0.0)
        wanted[group] = most @ problem.demand
    return np.flatnonzero((wanted > problem.capacity).any(axis=0))


def _first(problem: AssignmentProblem, steady: Ints | None) -> Ints:
    """The greedy answer, or the one made of the last where that is worth more."""
    nobody = np.full(len(problem.value), WAITING, dtype=np.int64)
    greedy = fill(problem, nobody, np.zeros_like(problem.capacity))
    return greedy if steady is None else max(greedy, steady, key=problem.worth)


def _made_fuller(problem: AssignmentProblem, before: Ints) -> Ints | None:
    """The last answer as far as it is still possible, and what is left given to others."""
    kept = _still_possible(problem, before)
    return None if kept is None else fill(problem, kept, np.zeros_like(problem.capacity))


def fill(problem: AssignmentProblem, shape: Ints, prices: Floats) -> Ints:
    """Give what is left to those to whom it is worth most for its price, each the best shape that fits.

    Who has a shape already changes it only for one that is worth as much to it.
    """
    net = problem.gains(prices)
    hopes = (net > 0).sum(axis=1).tolist()
    wishes = np.argsort(-net, axis=1, kind="stable")[:, : max(hopes, default=0)].tolist()
    left = (_limit(problem.capacity) - problem.used(shape)).tolist()
    group, workers, demand = problem.group.tolist(), problem.workers.tolist(), problem.demand.tolist()
    filled = shape.tolist()
    for job in np.argsort(-(net / _size(problem)).max(axis=1), kind="stable").tolist():
        held = filled[job]
        if held != WAITING:
            _take(left[group[held]], demand[job], -workers[held])
        for wish in wishes[job][: hopes[job]]:
            if _holds(left[group[wish]], demand[job], workers[wish]):
                if held == WAITING or problem.value[job, wish] >= problem.value[job, held]:
                    filled[job] = wish
                break
        if filled[job] != WAITING:
            _take(left[group[filled[job]]], demand[job], workers[filled[job]])
    return np.array(filled, dtype=np.int64)


def _holds(left: list[float], demand: list[float], workers: float) -> bool:
    return all(workers * each <= room for each, room in zip(demand, left, strict=True))


def _take(left: list[float], demand: list[float], workers: float) -> None:
    for resource, each in enumerate(demand):
        left[resource] -= workers * each


def _size(problem: AssignmentProblem) -> Floats:
    """The largest share of its group that a job takes in each shape."""
    shares = problem.demand[:, None, :] / np.maximum(problem.capacity, 1e-12)
    each = np.maximum(shares.max(axis=2, initial=0.0), 1e-12)
    size: Floats = each[:, problem.group] * problem.workers
    return size


def _still_possible(problem: AssignmentProblem, before: Ints) -> Ints | None:
    rows = np.flatnonzero(before != WAITING)
    kept = before.copy()
    gone = rows[np.isneginf(problem.value[rows, before[rows]])]
    kept[gone] = WAITING
    return kept if problem.fits(kept) else None


def _priced(problem: AssignmentProblem, best: Ints) -> tuple[Floats, float, Ints]:
    """Prices at which what everyone wants just fits, found by raising those of what is wanted too much.

    With them comes the bound, and the best answer made on the way.
    """
    capacity = np.maximum(problem.capacity, 1e-12)
    rows = np.arange(len(problem.value))
    prices = np.zeros_like(capacity)
    kept, bound = prices, np.inf
    worth = problem.worth(best)
    eagerness, stalled = 1.0, 0
    net = np.empty_like(problem.value)
    for step in range(_STEPS):
        net = problem.gains(prices, net)
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
        if bound - worth <= _tolerance(bound) or ((over <= _SLACK).all() and not prices.any()):
            break
        if stalled >= 4:
            eagerness, stalled = eagerness / 2, 0
        if eagerness < _TIRED:
            break
        slope = np.where((prices <= 0) & (over < 0), 0.0, over)
        length = float((slope**2).sum())
        if length == 0:
            break
        prices = np.maximum(0.0, prices + eagerness * (total - worth) / length * slope / capacity)
    return kept, bound, best


def _fitting(problem: AssignmentProblem, wanted: Ints, net: Floats) -> Ints:
    """Wanted shapes without the jobs that gain least from them in overfull groups."""
    rows = np.flatnonzero(wanted != WAITING)
    left = (_limit(problem.capacity) - problem.used(wanted)).tolist()
    group, workers, demand = problem.group.tolist(), problem.workers.tolist(), problem.demand.tolist()
    shape = wanted.tolist()
    for job in rows[np.argsort(net[rows, wanted[rows]], kind="stable")].tolist():
        room = left[group[shape[job]]]
        if min(room, default=0.0) < 0:
            _take(room, demand[job], -workers[shape[job]])
            shape[job] = WAITING
    return np.array(shape, dtype=np.int64)


def _improved(problem: AssignmentProblem, prices: Floats, bound: float, best: Ints, until: float) -> Ints:
    """An answer nearer to the bound, by lower prices first and then by HiGHS as long as there is time."""
    if bound - problem.worth(best) > _tolerance(bound):
        best = max(best, _eased(problem, prices), key=problem.worth)
    left = until - monotonic()
    if bound - problem.worth(best) > _tolerance(bound) and left > 0:
        best = max(best, _exact(problem, prices, bound, best, left), key=problem.worth)
    return best


def _eased(problem: AssignmentProblem, prices: Floats) -> Ints:
    """An answer from the shapes wanted at these prices, filled up at lower and lower prices."""
    net = problem.gains(prices)
    wanted = np.where(net.max(axis=1) > 0, net.argmax(axis=1), WAITING)
    made = _fitting(problem, wanted, net)
    for part in _EASING:
        made = fill(problem, made, part * prices)
    return made


def _exact(problem: AssignmentProblem, prices: Floats, bound: float, start: Ints, seconds: float) -> Ints:
    """The best choices that HiGHS finds in time, or those of `start`."""
    job, shape = np.nonzero(_undecided(problem, prices, bound, start))
    if len(job) > _PAIRS_PER_SECOND * seconds:
        return start
    takes = problem.demand[job] * problem.workers[shape][:, None]
    choices = Choices(job, problem.value[job, shape], problem.group[shape], takes)
    chosen = choose(choices, problem.capacity, start[job] == shape, seconds, _GAP)
    if chosen is None:
        return start
    found = np.full(len(start), WAITING, dtype=np.int64)
    found[job[chosen]] = shape[chosen]
    return found if problem.fits(found) else start


def _undecided(problem: AssignmentProblem, prices: Floats, bound: float, best: Ints) -> Bools:
    """The pairs of job and shape that may be in an answer worth more than this one, and those that are in it.

    Who takes a shape in which it gains less than in its best one, takes the difference off the bound.
    """
    net = problem.gains(prices)
    short = np.maximum(net.max(axis=1), 0.0)[:, None] - net
    possible: Bools = short <= bound - problem.worth(best) + _SLACK
    begun = np.flatnonzero(best != WAITING)
    possible[begun, best[begun]] = True
    return possible
