"""Simulated annealing over cuts: many small moves by chance, worse ones accepted less and less.

All rows stand in some order; a row whose stage has no nodes is not used. Sums per stage and bytes per
boundary are kept up to date, so that a move costs as much as the node has neighbours.
"""

from math import exp, inf
from random import Random
from time import monotonic

import numpy as np

from trimtab.partition.problem import Problem
from trimtab.partition.solvers.chain import Cut

_FIRST_HEAT, _LAST_HEAT = 0.05, 1e-4  # as shares of the step's seconds
_LOOK_AT_CLOCK = 256
_WITHOUT_MEMORY = 10.0  # how much a device that is twice too small lengthens the step


def annealed(problem: Problem, cut: Cut, moves: int, until: float, seed: int = 0) -> Cut:
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


def _as_cut(problem: Problem, stage_of: list[int], rows: list[int], known: Cut) -> Cut:
    """Without the stages that have no nodes; the known cut where that is no better."""
    used = sorted(set(stage_of))
    found = np.searchsorted(used, np.array(stage_of)).astype(np.int64)
    row_of = tuple(rows[stage] for stage in used)
    seconds = problem.seconds(found, row_of)
    return Cut(found, row_of, seconds) if seconds < known.seconds else known


class _State:
    """A cut with its sums."""

    def __init__(self, problem: Problem, cut: Cut) -> None:
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
        """What a cut is made from."""
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
        """What is short on the worst row, as a share of what it has; exact only where it may be short."""
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
