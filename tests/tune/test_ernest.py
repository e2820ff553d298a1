"""Ernest: a law of machines, fitted to trials."""

import numpy as np
import pytest
from searched_spaces import grid, trial, workload

from trimtab.core import BadInputError
from trimtab.predict.fewshot import settings_table
from trimtab.tune import Choice, Ernest, Space


def test_it_predicts_the_best_number_of_machines_of_a_type_it_knows() -> None:
    case = workload("searched", 1000.0)
    search = Ernest().begin(grid(), "time", [], 0)
    small = [row for row, name in enumerate(grid().names) if name.startswith("small")]
    choice = search.next([trial(case, row) for row in small[:3]])
    assert isinstance(choice, Choice)
    assert case.seconds[choice.row] < case.seconds[small[:3]].min()


def test_configurations_without_a_number_of_machines_are_refused() -> None:
    space = Space(("one", "two"), settings_table(2, cpus=[1.0, 2.0]), np.ones(2))
    with pytest.raises(BadInputError, match="one has no number of machines"):
        Ernest().begin(space, "cost", [], 0)
