from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import multicloud

ROW: dict[str, Any] = {
    "provider": "C",
    "A_family": "",
    "A_vcpu": "",
    "B_family": "",
    "B_vcpu": "",
    "C_family": "1.0",
    "C_type": "2.0",
    "C_vcpu": "1.0",
    "nodes": 3,
    "workload": "buzz-kmeans",
    "target_cost": 0.02,
    "target_runtime": 120.0,
    "status": "ok",
}
ON_A = {**ROW, "provider": "A", "A_family": 0.0, "A_vcpu": 0.0, "C_family": "", "C_type": "", "C_vcpu": ""}
FILE = "multi-cloud-configuration.csv"


def test_a_row_becomes_a_configuration_in_si_units(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    write_csv(tmp_path / FILE, [ROW, ON_A])
    (case,) = multicloud.read(tmp_path).cases
    assert (case.application, case.name) == ("kmeans", "buzz-kmeans")
    assert case.configurations == ("C family=1 type=2 vcpu=1 nodes=3", "A family=0 vcpu=0 nodes=3")
    assert case.setting("cpus").tolist() == [4.0, 2.0]
    np.testing.assert_allclose(case.setting("price_per_hour"), 0.02 / 120 / 3 * 3600)
    assert case.setting("type_2").tolist() == [1.0, 0.0]
    assert case.setting("provider_a").tolist() == [0.0, 1.0]
    assert np.isnan(case.metrics).all()


def test_failures_are_kept_or_left_out_before_repeats_are_averaged(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    failed = {**ROW, "status": "Timed out.", "target_runtime": 600.0}
    never = {**failed, "workload": "buzz-spectral_clustering"}
    write_csv(tmp_path / "multicloud" / FILE, [ROW, failed, never])
    everything = multicloud.read(tmp_path)
    assert [c.seconds.tolist() for c in everything.cases] == [[360.0], [600.0]]
    assert not everything.cases[0].ok.any()
    completed = multicloud.read(tmp_path, completed_only=True)
    assert [c.seconds.tolist() for c in completed.cases] == [[120.0]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target_runtime": -1}, f"{FILE}, line 3, column target_runtime: '-1' is not a number above zero"),
        ({"target_runtime": 0}, "line 3, column target_runtime: '0'"),
        ({"nodes": "many"}, "line 3, column nodes: 'many' is not a number"),
        ({"C_type": "highmem"}, "line 3, column C_type: 'highmem' is not a number"),
        ({"provider": "D"}, "line 3, column provider: 'D' is not A, B or C"),
        ({"workload": ""}, "line 3, column workload: is empty"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / FILE, [ROW, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        multicloud.read(tmp_path)


def test_a_missing_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=f"has a file {FILE}"):
        multicloud.read(tmp_path)
    write_csv(tmp_path / FILE, [ROW], without="nodes")
    with pytest.raises(BadInputError, match="has no column 'nodes'"):
        multicloud.read(tmp_path)


def test_the_published_file_has_30_workloads_of_which_28_complete(shared_data: Path) -> None:
    everything, completed = multicloud.read(shared_data), multicloud.read(shared_data, completed_only=True)
    assert (len(everything.cases), len(everything.applications)) == (30, 10)
    assert len({key for case in everything.cases for key in case.configurations}) == 82
    gone = {c.name for c in everything.cases} - {c.name for c in completed.cases}
    assert gone == {"buzz-spectral_clustering", "santander-spectral_clustering"}
