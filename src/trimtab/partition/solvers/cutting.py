"""The best cut of a problem: exact where the graph is small enough, in levels where it is not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from random import Random
from time import monotonic

import numpy as np

from trimtab.partition.graph import Ints, quiet_places
from trimtab.partition.problem import CutProblem
from trimtab.partition.solvers.chain import (
    ChainSolver,
    Cut,
    States,
    narrow_order,
    places_of_order,
    places_of_sets,
    states_of_classes,
    states_of_order,
)

_FIRST_HEAT, _LAST_HEAT = 0.05, 1e-4  # as shares of the step's seconds
_LOOK_AT_CLOCK = 256
_WITHOUT_MEMORY = 10.0  # how much a device that is twice too small lengthens the step


def annealed(problem: CutProblem, cut: Cut, moves: int, until: float, seed: int = 0) -> Cut:
    """The best cut that `moves` moves come by, starting from one; stops at `until` on the monotonic clock."""
    state = _State(problem, cut)
    random = Random(seed)
    now = best = state.seconds()
    kept = state.copy()
    heat, cooling = _FIRST_HEAT * best, (_LAST_HEAT / _FIRST_HEAT) ** (1.0 / max(moves, 1))
    for count in range(moves):
        if count % _LOOK_AT_CLOCK == 0 and monotonic() > until:
            break
        heat *= cooling
        undo = state.move(random)
        if undo is None:
            continue
        then = state.seconds()
        if then <= now or random.random() < exp((now - then) / heat):
            now = then
            if now < best * (1.0 - 1e-12):
                best, kept = now, state.copy()
        else:
            state.undo(undo)
    return _as_cut(problem, *kept, cut)


def _as_cut(problem: CutProblem, stage_of: list[int], rows: list[int], known: Cut) -> Cut:
    """Without the stages that have no nodes; the known cut where that is no better."""
    used = sorted(set(stage_of))
    found = np.searchsorted(used, np.array(stage_of)).astype(np.int64)
    row_of = tuple(rows[stage] for stage in used)
    seconds = problem.seconds(found, row_of)
    return Cut(found, row_of, seconds) if seconds < known.seconds else known


class _State:
    """A cut with its sums."""

    def __init__(self, problem: CutProblem, cut: Cut) -> None:
        graph = problem.graph
        self.problem = problem
        self.more = problem.layout.microbatches - 1
        self.trips, self.overlapped = problem.trips, problem.overlapped
        self.work = (problem.forward + problem.backward).tolist()
        self.once = problem.once.tolist()
        self.row_once = problem.row_once.tolist()
        self.latency, self.rate = problem.hand_latency.tolist(), problem.hand_rate.tolist()
        self.size = problem.tensor_bytes.tolist()
        self.producer = graph.producer.tolist()
        self.users: list[list[int]] = [[] for _ in self.size]
        self.touched: list[list[int]] = [[] for _ in range(len(graph))]
        for tensor, node in enumerate(self.producer):
            self.touched[node].append(tensor)
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.users[tensor].append(node)
            if tensor not in self.touched[node]:
                self.touched[node].append(tensor)
        self.needs = [
            [self.producer[t] for t in self.touched[n] if self.producer[t] != n] for n in range(len(graph))
        ]
        self.feeds = [
            [user for t in self.touched[n] if self.producer[t] == n for user in self.users[t]]
            for n in range(len(graph))
        ]
        spare = [row for row in range(len(problem.rows)) if row not in cut.row_of]
        self.rows = [*cut.row_of, *spare]
        self.stage_of = cut.stage_of.tolist()
        self.resident, self.kept = problem.resident.tolist(), problem.kept.tolist()
        self.largest = problem.alive * float(problem.tensor_bytes.max(initial=0.0)) + problem.base
        self.capacity = problem.capacity.tolist()
        self._add_up()

    def copy(self) -> tuple[list[int], list[int]]:
        """Stage of every node, and row of every stage."""
        return list(self.stage_of), list(self.rows)

    def _add_up(self) -> None:
        stages = len(self.rows)
        self.load, self.extra, self.count = [0.0] * stages, [0.0] * stages, [0] * stages
        self.stays, self.held = [0.0] * stages, [0.0] * stages
        for node, stage in enumerate(self.stage_of):
            self._count(node, stage, 1)
        self.crossing = [0.0] * stages
        for tensor in range(len(self.size)):
            self._cross(tensor, self.size[tensor])

    def _count(self, node: int, stage: int, sign: int) -> None:
        row = self.rows[stage]
        self.load[stage] += sign * self.work[row][node]
        self.extra[stage] += sign * self.once[row][node]
        self.stays[stage] += sign * self.resident[node]
        self.held[stage] += sign * self.kept[node]
        self.count[stage] += sign

    def _cross(self, tensor: int, amount: float) -> None:
        where = self.stage_of
        first = where[self.producer[tensor]]
        last = first
        for user in self.users[tensor]:
            last = max(last, where[user])
        for boundary in range(first, last):
            self.crossing[boundary] += amount

    def move(self, random: Random) -> tuple[int, int, int] | None:
        """Some move, done; what to tell `undo`. None where the one that came up changes nothing."""
        if random.random() < 0.04 and len(self.rows) > 1:
            first, second = random.sample(range(len(self.rows)), 2)
            self._trade(first, second)
            return -1, first, second
        node = random.randrange(len(self.stage_of))
        where, here = self.stage_of, self.stage_of[node]
        low, high = 0, len(self.rows) - 1
        for other in self.needs[node]:
            low = max(low, where[other])
        for other in self.feeds[node]:
            high = min(high, where[other])
        if low >= high:
            return None
        to = random.randint(low, high - 1)
        to += to >= here
        self._put(node, to)
        return node, here, to

    def undo(self, done: tuple[int, int, int]) -> None:
        """Take a move back."""
        node, first, second = done
        if node < 0:
            self._trade(first, second)
        else:
            self._put(node, first)

    def _put(self, node: int, to: int) -> None:
        for tensor in self.touched[node]:
            self._cross(tensor, -self.size[tensor])
        self._count(node, self.stage_of[node], -1)
        self.stage_of[node] = to
        self._count(node, to, 1)
        for tensor in self.touched[node]:
            self._cross(tensor, self.size[tensor])

    def _trade(self, first: int, second: int) -> None:
        self.rows[first], self.rows[second] = self.rows[second], self.rows[first]
        for stage in (first, second):
            row, nodes = self.rows[stage], [n for n, s in enumerate(self.stage_of) if s == stage]
            self.load[stage] = sum(self.work[row][node] for node in nodes)
            self.extra[stage] = sum(self.once[row][node] for node in nodes)

    def seconds(self) -> float:
        """Of a step; more where memory is short."""
        used = [stage for stage, count in enumerate(self.count) if count]
        total, slowest = 0.0, 0.0
        for place, stage in enumerate(used):
            row, hand = self.rows[stage], 0.0
            if place + 1 < len(used) and self.crossing[stage] > 0.5:
                to = self.rows[used[place + 1]]
                rate = self.rate[row][to]
                hand = self.latency[row][to] + self.crossing[stage] / rate if rate > 0.0 else inf
            load = self.load[stage] + (0.0 if self.overlapped else self.trips * hand)
            total += self.load[stage] + self.trips * hand
            slowest = max(
                slowest, self.more * load + self.extra[stage] + self.row_once[row], self.more * hand
            )
        return (total + slowest) * (1.0 + _WITHOUT_MEMORY * self._missing(used))

    def _missing(self, used: list[int]) -> float:
        """Memory missing on the worst row, as a share of its capacity; exact only where it may be short."""
        layout, before, worst = self.problem.layout, 0.0, False
        for place, stage in enumerate(used):
            after = self.crossing[stage]
            flight = layout.in_flight(len(used) - place) if self.problem.training else 1
            held = flight * (self.held[stage] + before + after)
            worst = worst or self.stays[stage] + held + self.largest > self.capacity[self.rows[stage]]
            before = after
        if not worst:
            return 0.0
        rows = [self.rows[stage] for stage in used]
        stage_of = np.searchsorted(used, np.array(self.stage_of)).astype(np.int64)
        capacity = self.problem.capacity[rows]
        need = self.problem.cost(stage_of, rows).row_memory
        return max(0.0, float(((need - capacity) / capacity).max()))


Judge = Callable[[Ints, tuple[int, ...]], float]
"""Seconds of a step with a stage for every node and a row for every stage; infinite where it does not fit."""


def improved(problem: CutProblem, cut: Cut, until: float, others: tuple[int, ...] = ()) -> Cut:
    """The cut after all moves that shorten the step; stops at `until` on the monotonic clock.

    `others` are rows that no stage uses yet: one may take a stage over.
    """
    best, better = cut, True
    while better and monotonic() < until:
        better = False
        for stage_of, row_of in _moves(problem, best, others):
            seconds = problem.seconds(stage_of, row_of)
            if seconds < best.seconds * (1.0 - 1e-9):
                best, better = Cut(stage_of, row_of, seconds), True
                break
            if monotonic() > until:
                break
    return best


def polished(problem: CutProblem, cut: Cut, others: tuple[int, ...], judge: Judge, most: int) -> Cut:
    """The cut after at most so many tries of moves that a `judge` finds shorter; stages may be split too."""
    best, left, better = cut, most, True
    while better:
        better = False
        for stage_of, row_of in (*_splits(best, others), *_moves(problem, best, others)):
            if left == 0:
                return best
            left -= 1
            seconds = judge(stage_of, row_of)
            if seconds < best.seconds * (1.0 - 1e-6):
                best, better = Cut(stage_of, row_of, seconds), True
                break
    return best


def _splits(cut: Cut, others: tuple[int, ...]) -> Iterator[tuple[Ints, tuple[int, ...]]]:
    """A stage's last quarter, half or three quarters on a row that nobody uses."""
    for row in others:
        if row in cut.row_of:
            continue
        for stage in range(len(cut.row_of)):
            nodes = np.flatnonzero(cut.stage_of == stage)
            for share in (0.25, 0.5, 0.75):
                first = int(len(nodes) * share)
                if 0 < first < len(nodes):
                    stage_of = cut.stage_of + (cut.stage_of > stage)
                    stage_of[nodes[first:]] = stage + 1
                    yield stage_of, (*cut.row_of[: stage + 1], row, *cut.row_of[stage + 1 :])


def _moves(problem: CutProblem, cut: Cut, others: tuple[int, ...]) -> Iterator[tuple[Ints, tuple[int, ...]]]:
    down, up = _movable(problem, cut.stage_of)
    for nodes, way in ((down, -1), (up, 1)):
        for node in nodes.tolist():
            yield _moved(cut.stage_of, [(node, way)]), cut.row_of
    for node in up.tolist():
        here = cut.stage_of[node]
        for other in down[cut.stage_of[down] == here + 1].tolist():
            stage_of = _moved(cut.stage_of, [(node, 1), (other, -1)])
            if _in_order(problem, stage_of):
                yield stage_of, cut.row_of
    yield from _trades(cut, others)


def _trades(cut: Cut, others: tuple[int, ...]) -> Iterator[tuple[Ints, tuple[int, ...]]]:
    """Cuts with the same stages on other rows."""
    rows = cut.row_of
    for first in range(len(rows)):
        for second in range(first + 1, len(rows)):
            traded = list(rows)
            traded[first], traded[second] = traded[second], traded[first]
            yield cut.stage_of, tuple(traded)
        for row in others:
            if row not in rows:
                yield cut.stage_of, (*rows[:first], row, *rows[first + 1 :])


def _movable(problem: CutProblem, stage_of: Ints) -> tuple[Ints, Ints]:
    """Nodes that may go a stage down because all they need is there, and those that may go a stage up."""
    sources, targets, _ = problem.graph.edges
    highest, lowest = np.full(len(stage_of), -1), np.full(len(stage_of), stage_of.max() + 1)
    np.maximum.at(highest, targets, stage_of[sources])
    np.minimum.at(lowest, sources, stage_of[targets])
    down = np.flatnonzero((highest < stage_of) & (stage_of > 0))
    return down, np.flatnonzero((lowest > stage_of) & (stage_of < stage_of.max()))


def _moved(stage_of: Ints, moves: list[tuple[int, int]]) -> Ints:
    found = stage_of.copy()
    for node, way in moves:
        found[node] += way
    return found


def _in_order(problem: CutProblem, stage_of: Ints) -> bool:
    sources, targets, _ = problem.graph.edges
    return bool((stage_of[sources] <= stage_of[targets]).all())


@dataclass(frozen=True, slots=True)
class CutEffort:
    """How long to look. `places` that an order is cut at, at once; `sets` of first nodes that are tried, and
    `states` of used rows; `moves` by chance, for at most `seconds`; `slack`: how far from the best, as a
    share, an answer over the same places may be."""

    places: int = 160
    sets: int = 400
    states: int = 300
    moves: int = 2000
    seconds: float = 1.0
    slack: float = 1e-3


_MANY_NODES = 3000  # beyond, one order has to do

QUICK = CutEffort(places=64, sets=0, states=0, moves=0, seconds=0.0, slack=0.02)
"""For sifting many layouts."""


def best_cut(problem: CutProblem, effort: CutEffort, seed: int = 0) -> Cut | None:
    """The best cut found; None where nothing fits."""
    states = list(_row_states(problem, effort))
    until = monotonic() + effort.seconds
    best = over_orders = _best_over_orders(problem, states, effort)
    if effort.sets and len(problem.graph) <= effort.places:
        places, whole = places_of_sets(problem, effort.sets)
        best = _better(best, *(ChainSolver(places, each).best(effort.slack) for each in states))
        if whole and len(states) == 1 and _by_class(states[0]):
            return best
    if best is None or effort.seconds <= 0.0:
        return best
    if len(problem.graph) <= effort.places:
        starts = {cut.seconds: cut for cut in (over_orders, best) if cut is not None}
        best = _better(best, *(annealed(problem, cut, effort.moves, until, seed) for cut in starts.values()))
        assert best is not None
    unused = one_of_each(problem, set(range(len(problem.rows))) - set(best.row_of))
    return improved(problem, best, until, unused)


def _better(*cuts: Cut | None) -> Cut | None:
    return min((cut for cut in cuts if cut is not None), key=lambda cut: cut.seconds, default=None)


def _by_class(states: States) -> bool:
    """Whether rows were tried in every order."""
    return any(len(steps) > 1 for steps in states.steps) or len(states.steps) <= 2


def _best_over_orders(problem: CutProblem, states: Sequence[States], effort: CutEffort) -> Cut | None:
    """The best over the order as it came and a narrow one, each cut exactly over its places."""
    best = _better(*(_in_levels(problem, each, effort) for each in states))
    if effort.sets and len(problem.graph) <= _MANY_NODES:
        order = narrow_order(problem.graph)
        turned = _reordered(problem, order)
        for each in states:
            cut = _in_levels(turned, each, effort)
            if cut is not None:
                best = _better(best, replace(cut, stage_of=_turned_back(cut.stage_of, order)))
    return best


def _turned_back(stage_of: Ints, order: Ints) -> Ints:
    found = np.empty_like(stage_of)
    found[order] = stage_of
    return found


def _reordered(problem: CutProblem, order: Ints) -> CutProblem:
    return replace(
        problem,
        graph=problem.graph.reordered(order),
        forward=problem.forward[:, order],
        backward=problem.backward[:, order],
        once=problem.once[:, order],
        resident=problem.resident[order],
        kept=problem.kept[order],
    )


def _in_levels(problem: CutProblem, states: States, effort: CutEffort) -> Cut | None:
    """The order's places a few at a time: spread over the work first, then close to where the cuts are."""
    count = len(problem.graph)
    if count + 1 <= effort.places:
        return ChainSolver(places_of_order(problem), states).best(effort.slack)
    work = problem.forward.mean(axis=0) + problem.backward.mean(axis=0)
    weight = work / max(work.sum(), 1e-30) + problem.resident / max(problem.resident.sum(), 1e-30)
    enough = 8 + 5 * len(problem.rows) // 4  # so that every row could have a stage
    ends = quiet_places(problem.graph, weight, max(effort.places, enough))
    best = ChainSolver(places_of_order(problem, ends), states).best(effort.slack)
    return None if best is None else sharpened(problem, best, states, effort, max(1, count // len(ends)))


def sharpened(problem: CutProblem, best: Cut, states: States, effort: CutEffort, step: int) -> Cut:
    """A cut after looking at places near its own, `step` nodes apart and then ever closer."""
    count = len(problem.graph)
    while True:
        chosen = np.flatnonzero(np.diff(best.stage_of)) + 1
        near = max(1, effort.places // (2 * max(1, len(chosen))))
        step = max(1, min(step // 2, 2 * step // near))
        offsets = np.arange(-near, near + 1) * step
        close = (chosen[:, None] + offsets[None, :]).ravel()
        ends = np.unique(np.concatenate([[0, count], chosen, close[(close > 0) & (close < count)]]))
        found = ChainSolver(places_of_order(problem, ends), states).best(effort.slack)
        if found is not None and found.seconds < best.seconds:
            best = found
        if step == 1:
            return best


def _row_states(problem: CutProblem, effort: CutEffort) -> Iterator[States]:
    """Rows in all orders where they are few kinds; else in a few orders that make sense."""
    by_class = states_of_classes(problem, classes_of(problem), effort.states) if effort.states else None
    if by_class is not None:
        yield by_class
        return
    seen: set[tuple[int, ...]] = set()
    groups = _by_signature(problem)
    alone = (problem.forward + problem.backward).sum(axis=1)
    pace = [float(-alone[each].mean()) for each in groups]
    keys = [pace, [-each for each in pace]]
    if effort.states:
        keys += [[float(index) for index in range(len(groups))]]
    for key in keys:
        order = tuple(row for k in sorted(range(len(groups)), key=key.__getitem__) for row in groups[k])
        if order not in seen:
            seen.add(order)
            yield states_of_order(problem, order)


def classes_of(problem: CutProblem) -> list[list[int]]:
    """Rows that can stand for each other: alike in speed and memory, and in their links to all others."""
    classes: list[list[int]] = []
    kinds = [problem.signature(row) for row in range(len(problem.rows))]
    for row in range(len(problem.rows)):
        for members in classes:
            if kinds[row] == kinds[members[0]] and _linked_alike(problem, row, members[0]):
                members.append(row)
                break
        else:
            classes.append([row])
    return classes


def _by_signature(problem: CutProblem) -> list[list[int]]:
    """Rows that are alike in speed and memory, in the order in which they came."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for row in range(len(problem.rows)):
        groups.setdefault(problem.signature(row), []).append(row)
    return list(groups.values())


def _linked_alike(problem: CutProblem, row: int, other: int) -> bool:
    rest = np.ones(len(problem.rows), dtype=bool)
    rest[[row, other]] = False
    rate, latency = problem.hand_rate, problem.hand_latency
    there = all(np.array_equal(each[row, rest], each[other, rest]) for each in (rate, latency))
    back = all(np.array_equal(each[rest, row], each[rest, other]) for each in (rate, latency))
    return there and back and bool(rate[row, other] == rate[other, row])


def one_of_each(problem: CutProblem, rows: set[int]) -> tuple[int, ...]:
    """Of rows that are alike, one."""
    return tuple(next(iter(left)) for each in classes_of(problem) if (left := set(each) & rows))
