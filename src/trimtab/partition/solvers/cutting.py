"""The best cut of a problem: exact where the graph is small enough, in levels where it is not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
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
    """The best cut met in `moves` random moves from a cut; stops at `until` on the monotonic clock."""
    state = _State(problem, cut)
    random = Random(seed)
    now = best = state.seconds()
    stages, rows = list(state.stage_of), list(state.rows)
    heat, cooling = _FIRST_HEAT * best, (_LAST_HEAT / _FIRST_HEAT) ** (1.0 / max(moves, 1))
    for number in range(moves):
        if number % _LOOK_AT_CLOCK == 0 and monotonic() > until:
            break
        heat *= cooling
        undo = state.move(random)
        if undo is None:
            continue
        then = state.seconds()
        if then <= now or random.random() < exp((now - then) / heat):
            now = then
            if now < best * (1.0 - 1e-12):
                best, stages, rows = now, list(state.stage_of), list(state.rows)
        else:
            state.undo(undo)
    used = sorted(set(stages))  # stages without nodes are left out
    stage_of = np.searchsorted(used, np.array(stages)).astype(np.int64)
    row_of = tuple(rows[stage] for stage in used)
    seconds = problem.seconds(stage_of, row_of)
    return Cut(stage_of, row_of, seconds) if seconds < cut.seconds else cut


class _State:
    """A cut with its sums per stage, updated move by move."""

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
        """Makes a random move; returns the argument of `undo`, or None where the move changes nothing."""
        if random.random() < 0.04 and len(self.rows) > 1:
            first, second = random.sample(range(len(self.rows)), 2)
            self._trade(first, second)
            return -1, first, second
        node = random.randrange(len(self.stage_of))
        where, here = self.stage_of, self.stage_of[node]
        low = max((where[other] for other in self.needs[node]), default=0)
        high = min((where[other] for other in self.feeds[node]), default=len(self.rows) - 1)
        if low >= high:
            return None
        to = random.randint(low, high - 1)
        to += to >= here
        self._put(node, to)
        return node, here, to

    def undo(self, done: tuple[int, int, int]) -> None:

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
        """Seconds of a step, lengthened where memory is short."""
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
"""Seconds of a step, given each node's stage and each stage's row; infinite where it does not fit."""


def improved(problem: CutProblem, cut: Cut, until: float, others: tuple[int, ...] = ()) -> Cut:
    """The cut after all moves that shorten the step; stops at `until` on the monotonic clock.

    `others` are unused rows, which may take a stage over.
    """
    moves = partial(_moves, problem, others=others)
    return _descended(cut, moves, problem.seconds, lambda: monotonic() > until, 1e-9)


def polished(problem: CutProblem, cut: Cut, others: tuple[int, ...], judge: Judge, most: int) -> Cut:
    """The cut after at most `most` tries of moves that `judge` finds shorter; stages may be split too."""
    tries = count()

    def moves(best: Cut) -> Iterator[tuple[Ints, tuple[int, ...]]]:
        return chain(_splits(best, others), _moves(problem, best, others))

    return _descended(cut, moves, judge, lambda: next(tries) == most, 1e-6)


def _descended(
    cut: Cut,
    moves: Callable[[Cut], Iterator[tuple[Ints, tuple[int, ...]]]],
    judge: Judge,
    stop: Callable[[], bool],
    gain: float,
) -> Cut:
    """The cut after taking the first move that shortens the step by the share `gain`, until none does."""
    best, better = cut, True
    while better:
        better = False
        for stage_of, row_of in moves(best):
            if stop():
                return best
            seconds = judge(stage_of, row_of)
            if seconds < best.seconds * (1.0 - gain):
                best, better = Cut(stage_of, row_of, seconds), True
                break
    return best


def _splits(cut: Cut, others: tuple[int, ...]) -> Iterator[tuple[Ints, tuple[int, ...]]]:
    """Cuts with the last quarter, half or three quarters of a stage moved to an unused row."""
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
    """Cuts with a node in the next or previous stage, two nodes exchanged, or stages on other rows."""
    where, last = cut.stage_of, cut.stage_of.max()
    sources, targets, _ = problem.graph.edges
    highest, lowest = np.full(len(where), -1), np.full(len(where), last + 1)
    np.maximum.at(highest, targets, where[sources])
    np.minimum.at(lowest, sources, where[targets])
    down = np.flatnonzero((highest < where) & (where > 0))  # all inputs are in earlier stages
    up = np.flatnonzero((lowest > where) & (where < last))  # all readers are in later stages
    for nodes, way in ((down, -1), (up, 1)):
        for node in nodes.tolist():
            yield _moved(where, [(node, way)]), cut.row_of
    for node in up.tolist():
        for other in down[where[down] == where[node] + 1].tolist():
            stage_of = _moved(where, [(node, 1), (other, -1)])
            if (stage_of[sources] <= stage_of[targets]).all():
                yield stage_of, cut.row_of
    rows = cut.row_of
    for first in range(len(rows)):
        for second in range(first + 1, len(rows)):
            traded = list(rows)
            traded[first], traded[second] = traded[second], traded[first]
            yield cut.stage_of, tuple(traded)
        for row in others:
            if row not in rows:
                yield cut.stage_of, (*rows[:first], row, *rows[first + 1 :])


def _moved(stage_of: Ints, moves: list[tuple[int, int]]) -> Ints:
    moved = stage_of.copy()
    for node, way in moves:
        moved[node] += way
    return moved


@dataclass(frozen=True, slots=True)
class CutEffort:
    """Effort of a cut: `places` of an order considered at once, `sets` of first nodes and `states` of used
    rows tried; random `moves` for at most `seconds`; `slack`, the share by which a cut over the same places
    may miss the best one."""

    places: int = 160
    sets: int = 400
    states: int = 300
    moves: int = 2000
    seconds: float = 1.0
    slack: float = 1e-3


_MANY_NODES = 3000  # larger graphs are cut in one order only

QUICK = CutEffort(places=64, sets=0, states=0, moves=0, seconds=0.0, slack=0.02)
"""For comparing many layouts."""


def best_cut(problem: CutProblem, effort: CutEffort, seed: int = 0) -> Cut | None:
    """The best cut found; None where nothing fits."""
    all_states = list(_row_states(problem, effort))
    until = monotonic() + effort.seconds
    best = _better(*(_in_levels(problem, states, effort) for states in all_states))
    if effort.sets and len(problem.graph) <= _MANY_NODES:
        order = narrow_order(problem.graph)
        reordered = replace(
            problem,
            graph=problem.graph.reordered(order),
            forward=problem.forward[:, order],
            backward=problem.backward[:, order],
            once=problem.once[:, order],
            resident=problem.resident[order],
            kept=problem.kept[order],
        )
        for states in all_states:
            cut = _in_levels(reordered, states, effort)
            if cut is not None:
                stage_of = np.empty_like(cut.stage_of)
                stage_of[order] = cut.stage_of
                best = _better(best, replace(cut, stage_of=stage_of))
    over_orders = best
    if effort.sets and len(problem.graph) <= effort.places:
        places, complete = places_of_sets(problem, effort.sets)
        best = _better(best, *(ChainSolver(places, states).best(effort.slack) for states in all_states))
        steps = all_states[0].steps
        every_order = len(steps) <= 2 or any(len(step) > 1 for step in steps)
        if complete and len(all_states) == 1 and every_order:
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


def _in_levels(problem: CutProblem, states: States, effort: CutEffort) -> Cut | None:
    """The cut over a few places of the order: spread over the work first, then close to the cut's own."""
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
        closer = ChainSolver(places_of_order(problem, ends), states).best(effort.slack)
        if closer is not None and closer.seconds < best.seconds:
            best = closer
        if step == 1:
            return best


def _row_states(problem: CutProblem, effort: CutEffort) -> Iterator[States]:
    """Rows in all orders where there are few classes; else by pace, fast or slow first, and as given."""
    by_class = states_of_classes(problem, classes_of(problem), effort.states) if effort.states else None
    if by_class is not None:
        yield by_class
        return
    groups: dict[tuple[float, ...], list[int]] = {}
    for row in range(len(problem.rows)):
        groups.setdefault(problem.signature(row), []).append(row)
    alone = (problem.forward + problem.backward).sum(axis=1)
    slow_first = sorted(groups.values(), key=lambda rows: -float(alone[rows].mean()))
    fast_first = sorted(groups.values(), key=lambda rows: float(alone[rows].mean()))
    orders = [slow_first, fast_first, *([list(groups.values())] if effort.states else [])]
    for order in dict.fromkeys(tuple(row for rows in order for row in rows) for order in orders):
        yield states_of_order(problem, order)


def classes_of(problem: CutProblem) -> list[list[int]]:
    """Interchangeable rows: alike in speed and memory, and in their links to all others."""
    rate, latency = problem.hand_rate, problem.hand_latency
    signatures = [problem.signature(row) for row in range(len(problem.rows))]

    def alike(row: int, other: int) -> bool:
        if signatures[row] != signatures[other] or rate[row, other] != rate[other, row]:
            return False
        rest = np.ones(len(problem.rows), dtype=bool)
        rest[[row, other]] = False
        return all(
            np.array_equal(links[row, rest], links[other, rest])
            and np.array_equal(links[rest, row], links[rest, other])
            for links in (rate, latency)
        )

    classes: list[list[int]] = []
    for row in range(len(problem.rows)):
        same = next((members for members in classes if alike(row, members[0])), None)
        if same is None:
            classes.append([row])
        else:
            same.append(row)
    return classes


def one_of_each(problem: CutProblem, rows: set[int]) -> tuple[int, ...]:
    """One of the given rows of each class."""
    return tuple(next(iter(same)) for members in classes_of(problem) if (same := set(members) & rows))
