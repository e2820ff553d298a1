"""One shape for each job, with the largest total worth within every group's capacity: an integer program.

With a price on every group's accelerators, CPUs and bytes, jobs choose independently (Lagrangian relaxation);
the prices at which their choices just fit give an upper bound. A feasible answer is made from those choices.
Pairs of job and shape whose loss exceeds the gap between bound and answer cannot be in the optimum; HiGHS
decides among the rest, starting from the answer and within a time limit. So the greedy answer is used where
time runs out, and large rounds cost hardly more than small ones.
"""

from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from trimtab.schedule.allocation import WAITING, Bools
from trimtab.schedule.cluster import Cluster, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """One row per choice: its job, worth and group, and what it `takes`; (choices, resources)."""

    owner: Ints
    worth: Floats
    group: Ints
    takes: Floats


def choose(choices: Choices, capacity: Floats, start: Bools, seconds: float, gap: float) -> Bools | None:
    """The best choices within the time limit, starting from `start`; None if there are none.

    `gap` is the relative gap to the optimum at which the search ends.
    """
    import highspy

    count, owners, (groups, resources) = len(choices.owner), int(choices.owner.max()) + 1, capacity.shape
    # Demand and capacity in units of the smallest demand: bytes would be badly scaled for the solver.
    least = np.array([row[row > 0].min(initial=np.inf) for row in choices.takes.T])
    unit = np.where(np.isfinite(least), least, 1.0)
    takes, limits = choices.takes / unit, capacity / unit
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
        # The search for a first answer takes longer than all the rest, and there is one already.
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


_STEPS = 80
_SMALLEST_STEP = 1 / 64  # of the first step; smaller ones hardly change prices
_CHUNK = 256  # jobs that are converted from columns at a time
_GAP = 1e-4
_SLACK = 1e-9
_EASING = (1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.3, 0.0)  # factors on the prices when the rest is filled
_PAIRS_PER_SECOND = 50_000  # that HiGHS can handle; it does not stop while it prepares more


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

        Jobs with a shape in `pinned` keep it: they choose nothing, and their demand is subtracted.
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
        """Value of each shape to each job minus its price; `out` saves allocating a large array."""
        # Not a product of matrices: its threads would only slow each other down here.
        gains: Floats = np.einsum("jr,sr->js", self.demand, prices[self.group], out=out)
        gains *= self.workers
        return np.subtract(self.value, gains, out=gains)

    def used(self, shape: Ints) -> Floats:
        """Resources of every group that an answer takes."""
        rows = np.flatnonzero(shape != WAITING)
        chosen = shape[rows]
        group, workers = self.group[chosen], self.workers[chosen]
        used = np.zeros_like(self.capacity)
        for resource, demand in enumerate(self.demand[rows].T):
            used[:, resource] = np.bincount(group, workers * demand, len(used))
        return used

    def fits(self, shape: Ints) -> bool:
        """Whether an answer is within every group's capacity."""
        return bool((self.used(shape) <= _limit(self.capacity)).all())

    def worth(self, shape: Ints) -> float:
        """Total value of an answer."""
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
    """The best answer within the time limit; `before` is an answer to start from, such as the last round's.

    The answer made from `before` changes less; it is used if it is worth at most a share `loyalty` less.
    """
    started = monotonic()
    prices = np.zeros_like(problem.capacity)
    if not len(problem.value):
        return Assignment(np.empty(0, dtype=np.int64), prices, 0.0, 0.0)
    steady = None if before is None else _refilled(problem, before)
    first = _first(problem, steady)
    scarce = _scarce(problem)
    problem = replace(problem, demand=problem.demand[:, scarce], capacity=problem.capacity[:, scarce])
    charged, bound, best = _priced(problem, first)
    prices[:, scarce] = charged
    if steady is None or problem.worth(steady) < (1.0 - loyalty) * bound:
        best = _improved(problem, charged, bound, best, started + seconds)
    if steady is not None and problem.worth(steady) >= (1.0 - loyalty) * problem.worth(best):
        best = steady
    return Assignment(best, prices, problem.worth(best), bound)


def _limit(capacity: Floats) -> Floats:
    """Capacity with a tolerance: sums of shares are not exact."""
    limit: Floats = capacity * (1.0 + _SLACK)
    return limit


def _tolerance(bound: float) -> float:
    """The gap to the bound at which an answer counts as optimal."""
    return _GAP * max(abs(bound), 1e-12)


def _scarce(problem: AssignmentProblem) -> Ints:
    """The resources whose largest demand exceeds the capacity of some group; the others never bind."""
    demand = np.zeros_like(problem.capacity)
    for group in range(len(demand)):
        here = np.flatnonzero(problem.group == group)
        possible = np.isfinite(problem.value[:, here])
        most = np.where(possible, problem.workers[here], 0.0).max(axis=1, initial=0.0)
        demand[group] = most @ problem.demand
    return np.flatnonzero((demand > problem.capacity).any(axis=0))


def _first(problem: AssignmentProblem, steady: Ints | None) -> Ints:
    """The greedy answer, or the refilled last one if that is worth more."""
    empty = np.full(len(problem.value), WAITING, dtype=np.int64)
    greedy = fill(problem, empty, np.zeros_like(problem.capacity))
    return greedy if steady is None else max(greedy, steady, key=problem.worth)


def _refilled(problem: AssignmentProblem, before: Ints) -> Ints | None:
    """The last answer without shapes that became impossible, filled up; None where it no longer fits."""
    rows = np.flatnonzero(before != WAITING)
    still_possible = before.copy()
    still_possible[rows[np.isneginf(problem.value[rows, before[rows]])]] = WAITING
    if not problem.fits(still_possible):
        return None
    return fill(problem, still_possible, np.zeros_like(problem.capacity))


def fill(problem: AssignmentProblem, shape: Ints, prices: Floats) -> Ints:
    """Fill free capacity by worth per price, giving each job the best shape that fits.

    A job that has a shape changes it only for one of at least the same value.
    """
    net = problem.gains(prices)
    counts = (net > 0).sum(axis=1)
    wishes = np.argsort(-net, axis=1, kind="stable")[:, : counts.max(initial=0)]
    order = np.argsort(-(net / _size(problem)).max(axis=1), kind="stable")
    free = (_limit(problem.capacity) - problem.used(shape)).tolist()
    group, workers = problem.group.tolist(), problem.workers.tolist()
    least, fewest = problem.demand.min(axis=0).tolist(), min(workers, default=0.0)
    filled = shape.copy()
    for start in range(0, len(order), _CHUNK):
        rows = order[start : start + _CHUNK]
        if (shape[rows] == WAITING).all() and not any(_holds(room, least, fewest) for room in free):
            continue  # there is no room for any of them
        columns = (rows, shape[rows], counts[rows], wishes[rows], problem.demand[rows])
        for job, held, count, wished, demand in zip(*(part.tolist() for part in columns), strict=True):
            chosen = held
            if held != WAITING:
                _take(free[group[held]], demand, -workers[held])
            for wish in wished[:count]:
                if _holds(free[group[wish]], demand, workers[wish]):
                    if held == WAITING or problem.value[job, wish] >= problem.value[job, held]:
                        chosen = wish
                    break
            if chosen != WAITING:
                _take(free[group[chosen]], demand, workers[chosen])
                filled[job] = chosen
    return filled


def _holds(free: list[float], demand: list[float], workers: float) -> bool:
    return all(workers * amount <= room for amount, room in zip(demand, free, strict=True))


def _take(free: list[float], demand: list[float], workers: float) -> None:
    for resource, amount in enumerate(demand):
        free[resource] -= workers * amount


def _size(problem: AssignmentProblem) -> Floats:
    """The largest share of its group that a job takes in each shape."""
    shares = problem.demand[:, None, :] / np.maximum(problem.capacity, 1e-12)
    amount = np.maximum(shares.max(axis=2, initial=0.0), 1e-12)
    size: Floats = amount[:, problem.group] * problem.workers
    return size


def _priced(problem: AssignmentProblem, best: Ints) -> tuple[Floats, float, Ints]:
    """Prices at which the jobs' choices just fit, by subgradient steps; the bound; the best answer."""
    capacity = np.maximum(problem.capacity, 1e-12)
    rows = np.arange(len(problem.value))
    prices = np.zeros_like(capacity)
    best_prices, bound = prices, np.inf
    worth = problem.worth(best)
    step_size, stalled = 1.0, 0
    net = np.empty_like(problem.value)
    for step in range(_STEPS):
        net = problem.gains(prices, net)
        choice = net.argmax(axis=1)
        gain = net[rows, choice]
        desired = np.where(gain > 0, choice, WAITING)
        total = float(np.maximum(gain, 0.0).sum() + (prices * problem.capacity).sum())
        if total < bound - 1e-9:
            bound, best_prices, stalled = total, prices, 0
        else:
            stalled += 1
        over = (problem.used(desired) - problem.capacity) / capacity
        if step % 10 == 9 or (over <= _SLACK).all():
            candidate = fill(problem, _fitting(problem, desired, net), prices)
            if problem.worth(candidate) > worth:
                best, worth = candidate, problem.worth(candidate)
        if bound - worth <= _tolerance(bound) or ((over <= _SLACK).all() and not prices.any()):
            break
        if stalled >= 4:
            step_size, stalled = step_size / 2, 0
        if step_size < _SMALLEST_STEP:
            break
        slope = np.where((prices <= 0) & (over < 0), 0.0, over)
        length = float((slope**2).sum())
        if length == 0:
            break
        prices = np.maximum(0.0, prices + step_size * (total - worth) / length * slope / capacity)
    return best_prices, bound, best


def _fitting(problem: AssignmentProblem, desired: Ints, net: Floats) -> Ints:
    """The desired shapes, without the jobs that gain least from them in overfull groups."""
    rows = np.flatnonzero(desired != WAITING)
    rows = rows[np.argsort(net[rows, desired[rows]], kind="stable")]
    free = _limit(problem.capacity) - problem.used(desired)
    shape = desired.copy()
    group = problem.group[desired[rows]]
    for index in np.flatnonzero((free < 0).any(axis=1)).tolist():
        here = rows[group == index]
        returned = problem.workers[desired[here], None] * problem.demand[here]
        room = np.cumsum(np.vstack((free[index], returned)), axis=0)  # after so many have been left out
        fits = (room >= 0).all(axis=1)
        shape[here[: int(fits.argmax()) if fits.any() else len(here)]] = WAITING
    return shape


def _improved(problem: AssignmentProblem, prices: Floats, bound: float, best: Ints, until: float) -> Ints:
    """An answer nearer to the bound, by lower prices first and then by HiGHS as long as there is time."""
    if bound - problem.worth(best) > _tolerance(bound):
        net = problem.gains(prices)
        desired = np.where(net.max(axis=1) > 0, net.argmax(axis=1), WAITING)
        eased = _fitting(problem, desired, net)
        for part in _EASING:
            eased = fill(problem, eased, part * prices)
        best = max(best, eased, key=problem.worth)
    seconds = until - monotonic()
    if bound - problem.worth(best) > _tolerance(bound) and seconds > 0:
        best = max(best, _exact(problem, prices, bound, best, seconds), key=problem.worth)
    return best


def _exact(problem: AssignmentProblem, prices: Floats, bound: float, start: Ints, seconds: float) -> Ints:
    """The best answer that HiGHS finds in time, or `start`."""
    job, shape = np.nonzero(_undecided(problem, prices, bound, start))
    if len(job) > _PAIRS_PER_SECOND * seconds:
        return start
    takes = problem.demand[job] * problem.workers[shape][:, None]
    choices = Choices(job, problem.value[job, shape], problem.group[shape], takes)
    chosen = choose(choices, problem.capacity, start[job] == shape, seconds, _GAP)
    if chosen is None:
        return start
    answer = np.full(len(start), WAITING, dtype=np.int64)
    answer[job[chosen]] = shape[chosen]
    return answer if problem.fits(answer) else start


def _undecided(problem: AssignmentProblem, prices: Floats, bound: float, best: Ints) -> Bools:
    """Pairs of job and shape that may be in a better answer, and those of this one.

    A job in a shape other than its best one lowers the bound by the difference of the gains.
    """
    net = problem.gains(prices)
    short = np.maximum(net.max(axis=1), 0.0)[:, None] - net
    possible: Bools = short <= bound - problem.worth(best) + _SLACK
    rows = np.flatnonzero(best != WAITING)
    possible[rows, best[rows]] = True
    return possible
