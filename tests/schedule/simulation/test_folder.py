"""Traces by name in a folder of data sets."""

from pathlib import Path

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule.simulation.scene import find_trace


def test_a_folder_of_data_sets_holds_traces_by_name(shared_data: Path) -> None:
    trace, file = find_trace(shared_data, "saturn-2")
    assert (trace.name, file.name) == ("saturn-2", "workloads.csv.gz")
    trace, file = find_trace(shared_data / "gpu-throughput", "physical_cluster/max_min_fairness")
    assert (len(trace.jobs), file.name) == (96, "gavel_traces.csv.gz")
    with pytest.raises(NotFoundError, match=r"saturn_1.*did you mean saturn-1"):
        find_trace(shared_data, "saturn_1")
    with pytest.raises(BadInputError, match="say which with --part"):
        find_trace(shared_data, None)


def test_a_folder_without_traces_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none of the traces known by name \(goodput/workloads"):
        find_trace(tmp_path, "saturn-1")
