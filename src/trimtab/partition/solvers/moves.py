"""Improving a cut by small moves: a node to a neighbouring stage, two that trade places, two rows that do."""

from collections.abc import Callable, Iterator
from time import monotonic

import numpy as np

from trimtab.partition.graph import Ints
from trimtab.partition.problem import Problem
from trimtab.partition.solvers.chain import Cut

Judge = Callable[[Ints, tuple[int, ...]], float]
"""Seconds of a step with a stage for every node and a row for every stage; infinite where it does not fit."""


def improved(problem: Problem, cut: Cut, until: float, others: tuple[int, ...] = ()) -> Cut:
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


def polished(problem: Problem, cut: Cut, others: tuple[int, ...], judge: Judge, most: int) -> Cut:
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


def _moves(problem: Problem, cut: Cut, others: tuple[int, ...]) -> Iterator[tuple[Ints, tuple[int, ...]]]:
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
    """The same stages on other rows."""
    rows = cut.row_of
    for first in range(len(rows)):
        for second in range(first + 1, len(rows)):
            traded = list(rows)
            traded[first], traded[second] = traded[second], traded[first]
            yield cut.stage_of, tuple(traded)
        for row in others:
            if row not in rows:
                yield cut.stage_of, (*rows[:first], row, *rows[first + 1 :])


def _movable(problem: Problem, stage_of: Ints) -> tuple[Ints, Ints]:
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


def _in_order(problem: Problem, stage_of: Ints) -> bool:
    sources, targets, _ = problem.graph.edges
    return bool((stage_of[sources] <= stage_of[targets]).all())
