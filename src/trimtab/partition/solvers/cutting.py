"""The best cut of a problem: exact where the graph is small enough, in levels where it is not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from trimtab.partition.coarse import quiet_places
from trimtab.partition.graph import Ints
from trimtab.partition.problem import Problem
from trimtab.partition.solvers.anneal import annealed
from trimtab.partition.solvers.chain import ChainSolver, Cut, States, states_of_classes, states_of_order
from trimtab.partition.solvers.moves import improved
from trimtab.partition.solvers.orders import narrow_order
from trimtab.partition.solvers.places import places_of_order, places_of_sets


@dataclass(frozen=True, slots=True)
class Effort:
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

QUICK = Effort(places=64, sets=0, states=0, moves=0, seconds=0.0, slack=0.02)
"""For sifting many layouts."""


def best_cut(problem: Problem, effort: Effort, seed: int = 0) -> Cut | None:
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


def _best_over_orders(problem: Problem, states: Sequence[States], effort: Effort) -> Cut | None:
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


def _reordered(problem: Problem, order: Ints) -> Problem:
    return replace(
        problem,
        graph=problem.graph.reordered(order),
        forward=problem.forward[:, order],
        backward=problem.backward[:, order],
        once=problem.once[:, order],
        resident=problem.resident[order],
        kept=problem.kept[order],
    )


def _in_levels(problem: Problem, states: States, effort: Effort) -> Cut | None:
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


def sharpened(problem: Problem, best: Cut, states: States, effort: Effort, step: int) -> Cut:
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


def _row_states(problem: Problem, effort: Effort) -> Iterator[States]:
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


def classes_of(problem: Problem) -> list[list[int]]:
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


def _by_signature(problem: Problem) -> list[list[int]]:
    """Rows that are alike in speed and memory, in the order in which they came."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for row in range(len(problem.rows)):
        groups.setdefault(problem.signature(row), []).append(row)
    return list(groups.values())


def _linked_alike(problem: Problem, row: int, other: int) -> bool:
    rest = np.ones(len(problem.rows), dtype=bool)
    rest[[row, other]] = False
    rate, latency = problem.hand_rate, problem.hand_latency
    there = all(np.array_equal(each[row, rest], each[other, rest]) for each in (rate, latency))
    back = all(np.array_equal(each[rest, row], each[rest, other]) for each in (rate, latency))
    return there and back and bool(rate[row, other] == rate[other, row])


def one_of_each(problem: Problem, rows: set[int]) -> tuple[int, ...]:
    """Of rows that are alike, one."""
    return tuple(next(iter(left)) for each in classes_of(problem) if (left := set(each) & rows))
