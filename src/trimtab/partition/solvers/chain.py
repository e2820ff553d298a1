"""The exact answer over given places: dynamic programming from the last stage to the first.

The step is Lat + the slowest stage's or boundary's extra time (see `problem`). For a bound W on the latter,
the least Lat follows stage by stage, because a stage's cost depends only on where it begins and ends, its
row, the next stage's row, and the number of stages behind it (which sets its micro-batches in flight).
Lowering W from solution to solution visits every trade-off between the two.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.problem import CutProblem

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CutPlaces:
    """Places to cut at, from before the first node to after the last; columns have a line per place.

    `crossing` bytes pass a place; `after[i, j]` says that a stage may reach from i to j, and `largest[i, j]`
    is its largest tensor. The nodes before each place are the first `ends` of the order, or those in `first`.
    """

    problem: CutProblem
    first: Bools | None
    ends: Ints | None
    crossing: Floats
    after: Bools
    largest: Floats

    def __len__(self) -> int:
        return len(self.crossing)

    def before(self, column: Floats) -> Floats:
        """For each place, the sum of a column over the nodes before it."""
        if self.ends is not None:
            return np.concatenate([[0.0], np.cumsum(column)])[self.ends]
        assert self.first is not None
        return self.first @ column

    def stages(self, chosen: Sequence[int]) -> Ints:
        """The stage of every node when cut at the chosen places (the ends included)."""
        count = len(self.problem.graph)
        if self.ends is not None:
            ends = self.ends[list(chosen[1:])]
            return np.searchsorted(ends, np.arange(count), side="right").astype(np.int64)
        assert self.first is not None
        behind: Ints = (~self.first[list(chosen[1:])]).sum(axis=0)
        return behind


def places_of_order(problem: CutProblem, ends: Ints | None = None) -> CutPlaces:
    """The places between nodes in the graph's order: all of them, or those after `ends` nodes."""
    graph, count = problem.graph, len(problem.graph)
    ends = np.arange(count + 1) if ends is None else ends
    crossing = graph.cut_bytes(problem.tensor_bytes)[ends]
    made = np.zeros(count)
    np.maximum.at(made, graph.producer, problem.tensor_bytes)
    between = np.maximum.reduceat(np.append(made, 0.0), ends[:-1]) if len(ends) > 1 else made[:0]
    index = np.arange(len(ends))
    # largest[i, j] is the maximum of `between` from i to j - 1.
    steps = np.where(index[None, :-1] >= index[:, None], between[None, :], 0.0)
    largest = np.concatenate([np.zeros((len(ends), 1)), np.maximum.accumulate(steps, axis=1)], axis=1)
    crossing = np.where(crossing < 0.5, 0.0, crossing)
    return CutPlaces(problem, None, ends, crossing, index[None, :] > index[:, None], largest)


def places_of_sets(problem: CutProblem, limit: int) -> tuple[CutPlaces, bool]:
    """Places before and after closed sets of nodes (that contain their inputs), and whether those are all.

    Where there are more than `limit`, only about that many whose outputs are small.
    """
    graph, leaving = problem.graph, _LeavingBytes(problem)
    sets = _closed_sets(leaving, limit, None)
    complete = sets is not None
    if sets is None:
        sets = _closed_sets(leaving, limit, max(1, limit // len(graph))) or []
    width, size = (len(graph) + 7) // 8, len(sets)
    packed = np.frombuffer(b"".join(bits.to_bytes(width, "little") for bits in sets), dtype=np.uint8)
    unpacked = np.unpackbits(packed.reshape(size, width), axis=1, bitorder="little")
    first = unpacked[:, : len(graph)].astype(bool)
    outside = ~first
    needed = np.zeros((size, len(graph.producer)), dtype=bool)
    for use, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
        needed[:, use] |= outside[:, node]
    crossing = (needed & first[:, graph.producer]) @ problem.tensor_bytes
    made = np.zeros(len(graph))
    np.maximum.at(made, graph.producer, problem.tensor_bytes)
    largest = np.zeros((size, size))
    for node in np.argsort(made, kind="stable").tolist():
        if made[node] > 0.0:
            largest[np.ix_(outside[:, node], first[:, node])] = made[node]
    counts = first.sum(axis=1)
    inside = (first.astype(np.float32) @ first.T.astype(np.float32)) >= counts[:, None] - 0.5
    after = inside & (counts[None, :] > counts[:, None])
    return CutPlaces(problem, first, None, crossing, after, largest), complete


def _closed_sets(leaving: "_LeavingBytes", limit: int, width: int | None) -> list[int] | None:
    """Closed sets as bits of an integer, by size; of each size the `width` that the fewest bytes leave.

    Without a width, None where there are more than `limit` sets.
    """
    sets, layer = [0], {0: 0.0}
    while layer:
        following: dict[int, float] = {}
        for inside, bytes_out in layer.items():
            for node, need in enumerate(leaving.needs):
                if not inside >> node & 1 and need & inside == need:
                    following[inside | 1 << node] = bytes_out + leaving.change(inside, node)
        if width is None and len(sets) + len(following) > limit:
            return None
        chosen = sorted(following, key=following.__getitem__)[:width]
        layer = {bits: following[bits] for bits in chosen}
        sets.extend(layer)
    return sets


class _LeavingBytes:
    """Bytes that leave a set of nodes (bits of an integer), and their change when a node joins the set."""

    def __init__(self, problem: CutProblem) -> None:
        graph = problem.graph
        self.needs = [0] * len(graph)
        self.uses: list[list[int]] = [[] for _ in range(len(graph))]
        self.users = [0] * len(graph.producer)
        self.made = [0.0] * len(graph)
        self.size = problem.tensor_bytes.tolist()
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.needs[node] |= 1 << int(graph.producer[tensor])
            self.users[tensor] |= 1 << node
            if tensor not in self.uses[node]:
                self.uses[node].append(tensor)
        for tensor, node in enumerate(graph.producer.tolist()):
            self.made[node] += self.size[tensor] if self.users[tensor] else 0.0

    def change(self, inside: int, node: int) -> float:
        """Bytes that leave the set with the node, less those that leave it without."""
        joined = inside | 1 << node
        done: float = sum(self.size[t] for t in self.uses[node] if not self.users[t] & ~joined)
        return self.made[node] - done


def narrow_order(graph: Graph) -> Ints:
    """A topological order that greedily keeps the fewest bytes waiting for later nodes; ties in order."""
    remaining = np.bincount(graph.used, minlength=len(graph.producer))
    uses: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
        uses[node].append(tensor)
    made = np.zeros(len(graph))
    np.add.at(made, graph.producer, graph.size)

    def growth(node: int) -> float:
        return float(made[node]) - sum(float(graph.size[t]) for t in uses[node] if remaining[t] == 1)

    sources, targets, _ = graph.edges
    following: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        following[source].append(target)
    waiting = np.bincount(targets, minlength=len(graph))
    ready = [node for node in range(len(graph)) if waiting[node] == 0]
    order: list[int] = []
    while ready:
        node = min(ready, key=lambda candidate: (growth(candidate), candidate))
        ready.remove(node)
        order.append(node)
        for tensor in uses[node]:
            remaining[tensor] -= 1
        for target in following[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return np.array(order, dtype=np.int64)


_EXACT = 1e-9
_TIGHT = 1e-3  # how close to the least bound its search goes


@dataclass(frozen=True, slots=True)
class States:
    """Sets of rows that stages use, in topological order from the empty set; `count` is the size of each.

    `steps[x]` are pairs: the row in front, and the state of the rows behind it. `members` are the rows that
    are interchangeable with a row, in the order in which they are taken.
    """

    steps: tuple[tuple[tuple[int, int], ...], ...]
    count: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The stage of every node, the row of every stage, and the seconds of a step."""

    stage_of: Ints
    row_of: tuple[int, ...]
    seconds: float


@dataclass(slots=True)
class _Solved:
    """One pass: by state and row in front, the least latency from a place, its stage's end and next row."""

    value: dict[tuple[int, int], Floats] = field(default_factory=dict)
    ends: dict[tuple[int, int], Ints] = field(default_factory=dict)
    behind: dict[tuple[int, int], Ints] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Path:
    """A path through the places: where stages begin and end, their rows, and the two parts of a step."""

    chosen: tuple[int, ...]
    rows: tuple[int, ...]
    latency: float
    slowest: float

    @property
    def seconds(self) -> float:
        return self.latency + self.slowest


class ChainSolver:
    """The columns of a problem over its places, computed once for all bounds."""

    def __init__(self, places: CutPlaces, states: States) -> None:
        self.places, self.states = places, states
        problem = self.problem = places.problem
        self.more = problem.layout.microbatches - 1
        rows = sorted({row for steps in states.steps for row, _ in steps})
        like: dict[tuple[float, ...], int] = {}
        self.like = {row: like.setdefault(problem.signature(row), row) for row in rows}
        self.load: dict[int, Floats] = {}
        self.extra: dict[int, Floats] = {}
        for row in like.values():
            work = _spans(places.before(problem.forward[row] + problem.backward[row]))
            once = _spans(places.before(problem.once[row]))
            self.load[row] = np.where(places.after, work, np.inf)
            self.extra[row] = self.more * work + once + problem.row_once[row]
        pairs = {
            (row, to) for steps in states.steps for row, behind in steps for to, _ in states.steps[behind]
        }
        links: dict[tuple[float, float], Floats] = {}
        self.hand: dict[tuple[int, int], Floats] = {}
        for row, to in pairs:
            other = to if to != row else states.members[row][1]  # the link to another row of its class
            link = float(problem.hand_rate[row, other]), float(problem.hand_latency[row, other])
            if link not in links:
                links[link] = problem.hand_seconds(row, other, places.crossing)
            self.hand[row, to] = links[link]
        self._resident = (
            _spans(places.before(problem.resident)) + problem.alive * places.largest + problem.base
        )
        self._kept = _spans(places.before(problem.kept))
        self._fitting: dict[tuple[int, int], Floats] = {}
        self._index = np.arange(len(places))

    def best(self, slack: float = 0.0) -> Cut | None:
        """The cut with the shortest step, or one within the share `slack` of it; None where nothing fits."""
        best = self._read(self._pass(np.inf))
        if best is None:
            return None
        least = best.latency
        best, tightest = self._tightest(best, least, slack)
        bound = best.seconds - least
        while bound > tightest:
            path = self._read(self._pass(bound))
            if path is None or path.latency + tightest >= best.seconds * (1.0 - slack):
                break  # lower bounds only make the latency longer
            best = min(best, path, key=lambda option: option.seconds)
            bound = min(path.slowest * (1.0 - max(slack, _EXACT)), best.seconds - least)
        stage_of, row_of = self.places.stages(best.chosen), self._members(best.rows)
        return Cut(stage_of, row_of, self.problem.cost(stage_of, row_of).seconds)

    def _tightest(self, known: _Path, least: float, slack: float) -> tuple[_Path, float]:
        """A path whose slowest stage is about as fast as possible, and a bound that no path keeps."""
        work = (self.problem.forward + self.problem.backward).sum(axis=1)
        low = self.more / float((1.0 / np.maximum(work, 1e-30)).sum())
        high, best, widening = known.seconds - least, known, 1.03
        while high > low * (1.0 + max(slack, _TIGHT)):
            middle = min(low * widening, 0.5 * (low + high)) if low > 0.0 else 0.5 * high
            path = self._read(self._pass(middle))
            if path is None:
                low, widening = middle, widening * 1.5
            else:
                high = min(middle, path.slowest)
                best = min(best, path, key=lambda option: option.seconds)
                widening = 1.0 + 0.5 * (widening - 1.0)
        return best, low

    def _pass(self, bound: float) -> _Solved:
        """The least latency when no stage or boundary takes more than `bound` after the first micro-batch."""
        solved, size = _Solved(), len(self.places)
        nothing_behind = np.full(size, np.inf)
        nothing_behind[-1] = 0.0
        allowed: dict[tuple[int, int], Floats] = {}
        with np.errstate(invalid="ignore"):  # one micro-batch over a missing link: 0 × inf
            onward = {
                id(hand): np.where(self.more * hand > bound, np.inf, self.problem.trips * hand)
                for hand in self.hand.values()
            }
        for state, steps in enumerate(self.states.steps):
            for row, behind in steps:
                key = self.like[row], self.problem.layout.in_flight(self.states.count[state])
                if key not in allowed:
                    allowed[key] = np.where(self.extra[key[0]] > bound, np.inf, self._fits(*key))
                tails = [
                    (to, solved.value[behind, to] + onward[id(self.hand[row, to])], self.hand[row, to])
                    for to, _ in self.states.steps[behind]
                ] or [(row, nothing_behind, np.zeros(size))]
                self._put(solved, (state, row), allowed[key], bound, tails)
        return solved

    def _put(
        self,
        solved: _Solved,
        key: tuple[int, int],
        stage: Floats,
        bound: float,
        tails: Sequence[tuple[int, Floats, Floats]],
    ) -> None:
        """Value of every place with a row in front: over all ends of its stage and all rows behind it."""
        choice = np.zeros(len(self.places), dtype=np.int64)
        least = tails[0][1]
        if len(tails) > 1:
            values = np.stack([tail for _, tail, _ in tails])
            choice, least = values.argmin(axis=0), values.min(axis=0)
        total = stage + least
        if not self.problem.overlapped:
            sending = np.stack([hand for _, _, hand in tails])[choice, self._index]
            late = self.extra[self.like[key[1]]] + self.more * self.problem.trips * sending > bound
            total = np.where(late, np.inf, total)
        end = total.argmin(axis=1)
        solved.value[key], solved.ends[key] = total[self._index, end], end
        solved.behind[key] = np.array([to for to, _, _ in tails])[choice[end]]

    def _fits(self, row: int, flight: int) -> Floats:
        """Seconds of a stage from each place to each other, infinite where it lacks the memory."""
        if (row, flight) not in self._fitting:
            crossing = self.places.crossing
            received, sent = crossing[:, None], crossing[None, :]
            if not self.problem.training:
                need = self._resident + received + sent
            elif self.problem.layout.recompute:
                need = self._resident + flight * received + self._kept + sent
            else:
                need = self._resident + flight * (self._kept + received + sent)
            fits = need <= self.problem.capacity[row]
            self._fitting[row, flight] = np.where(fits, self.load[row], np.inf)
        return self._fitting[row, flight]

    def _read(self, solved: _Solved) -> _Path | None:
        """The path with the least latency over all states; None where there is none."""
        latency, key = min(
            ((float(value[0]), key) for key, value in solved.value.items()), default=(np.inf, (0, 0))
        )
        if not np.isfinite(latency):
            return None
        chosen, rows, slowest = [0], [], 0.0
        state, row = key
        while True:
            start = chosen[-1]
            end, to = int(solved.ends[state, row][start]), int(solved.behind[state, row][start])
            state = next(behind for front, behind in self.states.steps[state] if front == row)
            last = not self.states.count[state]
            hand = 0.0 if last else float(self.hand[row, to][end])
            later = float(self.extra[self.like[row]][start, end])
            if not self.problem.overlapped:
                later += self.more * self.problem.trips * hand
            slowest = max(slowest, later, self.more * hand if self.more else 0.0)
            chosen.append(end)
            rows.append(row)
            if last:
                return _Path(tuple(chosen), tuple(rows), latency, slowest)
            row = to

    def _members(self, rows: Sequence[int]) -> tuple[int, ...]:
        """A distinct row for every stage, among the interchangeable ones."""
        taken: Counter[int] = Counter()
        members = []
        for row in rows:
            members.append(self.states.members[row][taken[row]])
            taken[row] += 1
        return tuple(members)


def _spans(before: Floats) -> Floats:
    """Sums from each place to each other, given the sums before each place."""
    return before[None, :] - before[:, None]


def states_of_classes(problem: CutProblem, classes: Sequence[Sequence[int]], limit: int) -> States | None:
    """States by the number of rows used of each class, in any order; None where they exceed the limit."""
    sizes = [len(members) for members in classes]
    if np.prod([size + 1.0 for size in sizes]) * len(sizes) > limit:
        return None
    counts = sorted(np.ndindex(*(size + 1 for size in sizes)), key=sum)
    number = {used: index for index, used in enumerate(counts)}
    steps = tuple(
        tuple(
            (classes[k][0], number[(*used[:k], used[k] - 1, *used[k + 1 :])])
            for k in range(len(sizes))
            if used[k] > 0
        )
        for used in counts
    )
    same = {row: tuple(members) for members in classes for row in members}
    members = tuple(same.get(row, (row,)) for row in range(len(problem.rows)))
    return States(steps, tuple(sum(used) for used in counts), members)


def states_of_order(problem: CutProblem, order: Sequence[int]) -> States:
    """States of rows in a given order; rows in front may stay unused."""
    steps: list[tuple[tuple[int, int], ...]] = [(), *(((row, i),) for i, row in enumerate(reversed(order)))]
    return States(tuple(steps), tuple(range(len(steps))), tuple((row,) for row in range(len(problem.rows))))
