"""The best cut of a small graph, with proof: a mixed-integer program, by HiGHS.

Stages k = 0..K-1 for K rows of devices, of which the last S are in use, so that how many micro-batches a
stage holds is known. Binary: `before[i, k]`, node i is in stage k or earlier, and `runs[k, d]`, row d runs
stage k. In between, and integral with them: `on[i, k, d]`, node i is in stage k, which row d runs;
`crosses[t, k]`, tensor t passes the boundary after stage k; `joined[k, d, e]`, rows d and e are on both sides
of it. The seconds are those of `problem`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.partition.graph import Floats, Ints
from trimtab.partition.problem import CutProblem

Terms = list[tuple[Any, float]]
"""Column numbers with their coefficients; coefficients of a repeated column add up."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSolution:
    """`values` of the columns, None where none are feasible; `bound` is a lower bound on the cost.

    `proven` says that the solver finished: with values within the gap, or with a proof that none exist.
    """

    values: Floats | None
    bound: float
    proven: bool


class LinearProgram:
    """Minimises the cost of bounded columns subject to rows."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._starts: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    def columns(
        self,
        shape: tuple[int, ...],
        lower: Floats | NDArray[np.bool_] | float = 0.0,
        upper: float = 1.0,
        cost: float = 0.0,
        integer: bool = False,
    ) -> NDArray[np.int64]:
        """New columns, as an array of their numbers."""
        count = int(np.prod(shape))
        first = len(self.cost)
        self.cost += [cost] * count
        self._lower += np.broadcast_to(np.asarray(lower, dtype=float), shape).ravel().tolist()
        self._upper += [upper] * count
        self._integer += [integer] * count
        return np.arange(first, first + count).reshape(shape)

    def at_most(self, terms: Terms, limit: float) -> None:
        self._row(terms, -np.inf, limit)

    def at_least(self, terms: Terms, limit: float) -> None:
        self._row(terms, limit, np.inf)

    def equal(self, terms: Terms, value: float) -> None:
        self._row(terms, value, value)

    def _row(self, terms: Terms, lower: float, upper: float) -> None:
        together: dict[int, float] = {}
        for column, times in terms:
            together[int(column)] = together.get(int(column), 0.0) + times
        self._index += together.keys()
        self._value += together.values()
        self._starts.append(len(self._index))
        self._row_lower.append(lower)
        self._row_upper.append(upper)

    def solve(self, time_limit: float, gap: float) -> ProgramSolution:
        """The best values within `time_limit` seconds or the relative gap."""
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), len(self._row_lower)
        model.col_cost_ = np.array(self.cost)
        model.col_lower_, model.col_upper_ = np.array(self._lower), np.array(self._upper)
        model.row_lower_, model.row_upper_ = np.array(self._row_lower), np.array(self._row_upper)
        kinds: Sequence[Any] = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[integer] for integer in self._integer]
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self._starts)
        model.a_matrix_.index_, model.a_matrix_.value_ = np.array(self._index), np.array(self._value)

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        settings = {"output_flag": False, "time_limit": time_limit, "mip_rel_gap": gap, "threads": 1}
        for name, setting in settings.items():
            solver.setOptionValue(name, setting)
        solver.passModel(model)
        solver.run()
        ended, info = solver.getModelStatus(), solver.getInfo()
        proven = ended in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.array(solver.getSolution().col_value) if feasible else None
        return ProgramSolution(values, float(info.mip_dual_bound), proven)


_BYTES = 1e-9  # the program counts in gigabytes, for the solver's numerics
_SCALE = 100.0  # of the program's seconds: the time of the fastest row alone


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """The best cut, None where none fits; no cut takes less than `bound` seconds.

    `proven` where `seconds` is within the requested gap of `bound`; `took` is the solver's time.
    """

    stage_of: Ints | None
    row_of: tuple[int, ...]
    seconds: float
    bound: float
    proven: bool
    took: float


def solve_exactly(problem: CutProblem, time_limit: float = 60.0, gap: float = 1e-4) -> Exact:
    """The cut with the least seconds, each stage on a row of its own; rows may stay unused."""
    began = perf_counter()
    program = CutProgram(problem)
    solution = program.program.solve(time_limit, gap)
    took = perf_counter() - began
    bound = solution.bound / program.unit
    if solution.values is None:
        return Exact(None, (), np.inf, np.inf if solution.proven else bound, solution.proven, took)
    stage_of, row_of = program.cut(solution.values)
    return Exact(stage_of, row_of, problem.seconds(stage_of, row_of), bound, solution.proven, took)


class CutProgram:
    """The program of a problem, and its solution as a cut; `unit` is a second in the program's time."""

    def __init__(self, problem: CutProblem) -> None:
        self.problem = problem
        self.program = LinearProgram()
        self.stages, self.nodes = len(problem.rows), len(problem.graph)
        alone = (problem.forward + problem.backward).sum(axis=1).min()
        self.unit = _SCALE / max(float(alone), 1e-12)
        self._choices()
        self._crossings()
        self._hands()
        self._seconds()
        self._memory()

    def cut(self, values: Floats) -> tuple[Ints, tuple[int, ...]]:
        """The stage of every node, from 0, and the row of every stage."""
        runs = values[self.runs] > 0.5
        used = np.flatnonzero(runs.any(axis=1))
        before = values[self.before] > 0.5
        stage_of = self.stages - before.sum(axis=1) - int(used[0])
        return stage_of.astype(np.int64), tuple(int(runs[k].argmax()) for k in used)

    def _choices(self) -> None:
        """Each node is in one stage on one row; no tensor flows back, and no stage in use is empty."""
        program, stages, nodes = self.program, self.stages, self.nodes
        last = np.arange(stages) == stages - 1
        self.before = program.columns((nodes, stages), lower=np.tile(last, (nodes, 1)), integer=True)
        self.runs = program.columns((stages, stages), integer=True)
        self.on = program.columns((nodes, stages, stages))
        for i in range(nodes):
            for k in range(stages):
                program.equal(self._is_in(i, k) + [(c, -1.0) for c in self.on[i, k]], 0.0)
                if k:
                    program.at_most([(self.before[i, k - 1], 1.0), (self.before[i, k], -1.0)], 0.0)
                for d in range(stages):
                    program.at_most([(self.on[i, k, d], 1.0), (self.runs[k, d], -1.0)], 0.0)
        sources, targets, _ = self.problem.graph.edges
        for i, j in sorted({*zip(sources.tolist(), targets.tolist(), strict=True)}):
            for k in range(stages - 1):
                program.at_most([(self.before[j, k], 1.0), (self.before[i, k], -1.0)], 0.0)
        for k in range(stages):
            program.at_most(self._used(k), 1.0)
            program.at_most([(c, 1.0) for c in self.runs[:, k]], 1.0)
            program.at_least([t for i in range(nodes) for t in self._is_in(i, k)] + self._used(k, -1.0), 0.0)
            if k:
                program.at_most(self._used(k - 1) + self._used(k, -1.0), 0.0)
        for one, other in _interchangeable(self.problem):
            later = [(self.runs[k, other], -(k + 1.0)) for k in range(stages)]
            program.at_most([(self.runs[k, one], k + 1.0) for k in range(stages)] + later, 0.0)

    def _is_in(self, node: int, stage: int) -> Terms:
        """One where the node is in the stage."""
        terms = [(self.before[node, stage], 1.0)]
        return [*terms, (self.before[node, stage - 1], -1.0)] if stage else terms

    def _used(self, stage: int, times: float = 1.0) -> Terms:
        return [(column, times) for column in self.runs[stage]]

    def _crossings(self) -> None:
        """Tensors that cross each boundary: made before it and needed after it, once."""
        problem, program = self.problem, self.program
        self.crosses = program.columns((len(problem.tensor_bytes), self.stages - 1))
        for tensor, user in zip(problem.graph.used.tolist(), problem.graph.user.tolist(), strict=True):
            made = problem.graph.producer[tensor]
            for k in range(self.stages - 1):
                terms = [(self.crosses[tensor, k], 1.0), (self.before[made, k], -1.0)]
                program.at_least([*terms, (self.before[user, k], 1.0)], 0.0)

    def _crossing_bytes(self, stage: int, times: float = 1.0) -> Terms:
        """Bytes over the boundary after a stage; nothing beyond the ends."""
        if not 0 <= stage < self.stages - 1:
            return []
        return [
            (column, times * size * _BYTES)
            for column, size in zip(self.crosses[:, stage], self.problem.tensor_bytes.tolist(), strict=True)
            if size > 0.0
        ]

    def _hands(self) -> None:
        """Seconds of handing on over each boundary, by the link between the rows on both sides."""
        problem, program, rows = self.problem, self.program, range(self.stages)
        most = float(problem.tensor_bytes.sum()) * _BYTES
        needed = np.unique(problem.graph.producer[problem.graph.used])
        certain = len(needed) == self.nodes - 1 and bool((problem.tensor_bytes > 0.0).all())
        self.hand = program.columns((self.stages - 1,), upper=np.inf)
        joined = program.columns((self.stages - 1, self.stages, self.stages))
        for k in range(self.stages - 1):
            seconds: Terms = [(self.hand[k], -1.0)]
            over = self._crossing_bytes(k, -1.0)
            # One where any bytes pass the boundary; certain where all nodes lead to one end.
            (anything,) = program.columns((1,), lower=1.0 if certain else 0.0)
            for tensor in () if certain else np.flatnonzero(problem.tensor_bytes > 0.0):
                program.at_least([(anything, 1.0), (self.crosses[tensor, k], -1.0)], 0.0)
            for d in rows:
                program.equal([(c, 1.0) for c in joined[k, d]] + [(self.runs[k, d], -1.0)], 0.0)
                program.at_most([(c, 1.0) for c in joined[k, :, d]] + [(self.runs[k + 1, d], -1.0)], 0.0)
                for e in rows:
                    rate = problem.hand_rate[d, e] * _BYTES if d != e else 0.0
                    (carried,) = program.columns((1,), upper=np.inf if rate > 0 else 0.0)
                    (paid,) = program.columns((1,), upper=1.0 if rate > 0 else 0.0)
                    program.at_most([(carried, 1.0), (joined[k, d, e], -most)], 0.0)
                    program.at_least([(paid, 1.0), (joined[k, d, e], -1.0), (anything, -1.0)], -1.0)
                    over.append((carried, 1.0))
                    if rate > 0:
                        seconds.append((carried, self.unit / rate))
                        seconds.append((paid, self.unit * problem.hand_latency[d, e]))
            program.equal(over, 0.0)
            program.at_most(seconds, 0.0)

    def _seconds(self) -> None:
        """Minimise the latency of one micro-batch plus the slowest stage's time for all others."""
        problem, program = self.problem, self.program
        more = problem.layout.microbatches - 1
        (slowest,) = program.columns((1,), upper=np.inf, cost=1.0)
        load = (problem.forward + problem.backward) * self.unit
        for k in range(self.stages):
            terms = self._of_nodes(k, more * load + problem.once * self.unit) + [
                (column, once * self.unit)
                for column, once in zip(self.runs[k], problem.row_once.tolist(), strict=True)
            ]
            if not problem.overlapped and k < len(self.hand):
                terms.append((self.hand[k], more * problem.trips))
            program.at_most([*terms, (slowest, -1.0)], 0.0)
            for column, seconds in self._of_nodes(k, load):
                program.cost[column] = seconds
        for column in self.hand:
            program.cost[column] = problem.trips
            program.at_most([(column, float(more)), (slowest, -1.0)], 0.0)

    def _of_nodes(self, stage: int, per_row: Floats) -> Terms:
        """The sum over nodes of a stage, each as on the row that runs it."""
        columns = self.on[:, stage, :]
        return list(zip(columns.ravel().tolist(), per_row.T.ravel().tolist(), strict=True))

    def _memory(self) -> None:
        """Memory of a stage fits on a device of its row."""
        problem, program = self.problem, self.program
        largest = program.columns((self.stages,), upper=np.inf)
        per_weight = float(problem.resident.sum()) / max(float(problem.graph.parameters.sum()), 1.0)
        for k in range(self.stages):
            flight = problem.layout.in_flight(self.stages - k)
            of_kept, of_sent, of_received = 0.0, 1.0, 1.0
            if problem.training:
                recompute = problem.layout.recompute
                of_kept, of_sent, of_received = (1.0, 1.0, flight) if recompute else (flight,) * 3
            terms: Terms = [(largest[k], problem.alive)]
            for i in range(self.nodes):
                held = float(problem.resident[i] + of_kept * problem.kept[i])
                terms += [(column, times * held * _BYTES) for column, times in self._is_in(i, k)]
            for tie in problem.graph.ties:  # a weight that several nodes of the stage use is there once
                size = tie.parameters * per_weight * _BYTES
                (here,) = program.columns((1,))
                terms.append((here, size))
                for node in tie.nodes:
                    terms += [(column, -times * size) for column, times in self._is_in(node, k)]
                    there = [(column, -times) for column, times in self._is_in(node, k)]
                    program.at_least([(here, 1.0), *there], 0.0)
            terms += self._crossing_bytes(k, of_sent) + self._crossing_bytes(k - 1, of_received)
            room = (problem.base - problem.capacity) * _BYTES
            terms += list(zip(self.runs[k].tolist(), room.tolist(), strict=True))
            program.at_most(terms, 0.0)
            for made, size in zip(
                problem.graph.producer.tolist(), problem.tensor_bytes.tolist(), strict=True
            ):
                alive = [(column, times * size * _BYTES) for column, times in self._is_in(made, k)]
                program.at_most([*alive, (largest[k], -1.0)], 0.0)


def _interchangeable(problem: CutProblem) -> Sequence[tuple[int, int]]:
    """Neighbouring rows that are equal in everything, including their links to all others."""

    def same(one: int, other: int) -> bool:
        columns = (problem.forward, problem.backward, problem.once, problem.row_once, problem.capacity)
        if not all(np.array_equal(column[one], column[other]) for column in columns):
            return False
        swapped = np.arange(len(problem.rows))
        swapped[[one, other]] = other, one
        off = ~np.eye(len(swapped), dtype=bool)
        return all(
            np.array_equal(link[off], link[np.ix_(swapped, swapped)][off])
            for link in (problem.hand_latency, problem.hand_rate)
        )

    return [(d, d + 1) for d in range(len(problem.rows) - 1) if same(d, d + 1)]
