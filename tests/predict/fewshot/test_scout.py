from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import scout

ROW: dict[str, Any] = {
    "n_nodes": 4,
    "vm": "c4.large",
    "vm_vcpus": 2.0,
    "vm_mem_gib": 3.75,
    "vm_price_usd_h": 0.1,
    "workload": "terasort",
    "framework": "hadoop",
    "datasize": "huge",
    "completed": True,
    "elapsed_s": 100.0,
    "timestamp": "2017-09-25 10:00:00",
    "cpu_pct_usr_mean": 50.0,
    "cpu_pct_sys_mean": 10.0,
    "cpu_pct_iowait_mean": 5.0,
    "task_cswch_per_s_mean": 1000.0,
    "disk_rd_sec_per_s_mean": 2.0,
    "disk_wr_sec_per_s_mean": 4.0,
    "network_rxkB_per_s_mean": 1.0,
    "network_txkB_per_s_mean": 2.0,
    "paging_majflt_per_s_mean": 0.5,
    "disk_pct_util_mean": 20.0,
    "memory_kbmemused_mean": 1024.0,
    "memory_pct_memused_mean": 80.0,
}


def test_a_run_becomes_a_configuration_in_si_units(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    write_csv(tmp_path / "scout_multi_node.csv", [ROW, {**ROW, "n_nodes": 8, "completed": False}])
    (case,) = scout.read(tmp_path).cases
    assert (case.application, case.name) == ("terasort", "terasort-hadoop-huge")
    assert case.configurations == ("c4.large nodes=4", "c4.large nodes=8")
    assert case.ok.tolist() == [True, False]
    assert case.setting("generation")[0] == 4.0
    assert case.setting("memory_bytes")[0] == 3.75 * 2**30
    shown = {"cpu_user": 1.0, "bytes_read": 1024.0, "bytes_sent": 2048.0, "memory_used": 2.0**20}
    assert {name: case.metric(name)[0] for name in shown} == shown
    assert np.isnan(case.metric("throttled")).all()


def test_single_machines_are_read_from_the_campaign_that_can_be_trusted(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    early = {**ROW, "timestamp": "2017-09-20 10:00:00", "elapsed_s": 900.0}
    other = {**early, "framework": "spark1.5", "elapsed_s": 50.0}
    failed = {**ROW, "completed": False, "elapsed_s": "", "timestamp": ""}
    write_csv(tmp_path / "scout_single_node.csv", [ROW, early, other, {**ROW, "elapsed_s": 110.0}, failed])
    corpus = scout.read_single_node(tmp_path)
    assert {c.name: c.seconds.tolist() for c in corpus.cases} == {
        "terasort-hadoop-huge": [105.0],
        "terasort-spark1.5-huge": [50.0],
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"elapsed_s": 0}, "line 3, column elapsed_s: '0' is not a number above zero"),
        ({"elapsed_s": ""}, "line 3, column elapsed_s: '' is not a number above zero"),
        ({"completed": "yes"}, "line 3, column completed: 'yes' is neither True nor False"),
        ({"vm": "large"}, "line 3, column vm: 'large' is not an instance type such as m4.large"),
        ({"cpu_pct_usr_mean": "high"}, "line 3, column cpu_pct_usr_mean: 'high' is not a number"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / "scout_multi_node.csv", [ROW, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        scout.read(tmp_path)


def test_a_missing_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=r"has a file scout_single_node\.csv"):
        scout.read_single_node(tmp_path)
    write_csv(tmp_path / "scout_multi_node.csv", [ROW], without="vm_vcpus")
    with pytest.raises(BadInputError, match="has no column 'vm_vcpus'"):
        scout.read(tmp_path)


def test_the_published_files_are_read_whole(shared_data: Path) -> None:
    clusters = scout.read(shared_data)
    assert (len(clusters.cases), {len(c) for c in clusters.cases}) == (18, {69})
    assert sum(int((~c.ok).sum()) for c in clusters.cases) == 75
    assert len(scout.read_single_node(shared_data).cases) > 100
