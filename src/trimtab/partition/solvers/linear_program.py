"""A mixed-integer linear program, written down column by column and row by row, and given to HiGHS."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.partition.graph import Floats

Terms = list[tuple[Any, float]]
"""Columns, by number, and what they are multiplied with; one that is named twice adds up."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """`values` of the columns, None where there are none that meet all rows; `bound` on what can be reached.

    `proven` says whether the search ended by itself: with an answer within the gap, or without any.
    """

    values: Floats | None
    bound: float
    proven: bool


class LinearProgram:
    """Minimise the cost of columns between their bounds that meet all rows."""

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
        """The sum of terms is at most the limit."""
        self._row(terms, -np.inf, limit)

    def at_least(self, terms: Terms, limit: float) -> None:
        """The sum of terms is at least the limit."""
        self._row(terms, limit, np.inf)

    def equal(self, terms: Terms, value: float) -> None:
        """The sum of terms is the value."""
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

    def solve(self, time_limit: float, gap: float) -> Solution:
        """The best values found within so many seconds, or within the relative gap of the best there are."""
        import highspy

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        settings = {"output_flag": False, "time_limit": time_limit, "mip_rel_gap": gap, "threads": 1}
        for name, setting in settings.items():
            solver.setOptionValue(name, setting)
        solver.passModel(self._model())
        solver.run()
        ended, info = solver.getModelStatus(), solver.getInfo()
        proven = ended in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.array(solver.getSolution().col_value) if feasible else None
        return Solution(values, float(info.mip_dual_bound), proven)

    def _model(self) -> Any:
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
        return model
