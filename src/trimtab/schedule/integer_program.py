"""At most one choice for each owner, worth the most together, within what groups have: by HiGHS."""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Floats, Ints
from trimtab.schedule.jobs import Bools


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
    """What is taken and what there is in units of the least anyone takes: solvers do not like bytes."""
    least = np.array([row[row > 0].min(initial=np.inf) for row in choices.takes.T])
    unit = np.where(np.isfinite(least), least, 1.0)
    return choices.takes / unit, capacity / unit
