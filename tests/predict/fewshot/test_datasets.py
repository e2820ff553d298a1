import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict import BUNDLED_STEPS
from trimtab.predict.fewshot.case import metrics_table, settings_table
from trimtab.predict.fewshot.datasets import (
    MeasuredRuns,
    read_functions,
    read_gavel,
    read_multicloud,
    read_scout,
    read_steps,
)


def _rows(**fields: object) -> MeasuredRuns:
    given: dict[str, object] = {
        "application": ("a", "b", "a", "a"),
        "name": ("a", "b", "a", "a"),
        "environment": ("here",) * 4,
        "configuration": ("small", "small", "large", "small"),
        "settings": settings_table(4, cpus=[1, 1, 2, 1]),
        "metrics": metrics_table(4, cpu_user=[0.5, 0.1, np.nan, np.nan], cpu_system=[0.1, 0.1, 0.1, 0.3]),
        "seconds": np.array([4.0, 9.0, 1.0, 6.0]),
        "ok": np.array([True, True, True, False]),
    }
    return MeasuredRuns(**{**given, **fields})  # type: ignore[arg-type]


def test_repeats_are_averaged_over_what_is_known() -> None:
    first, second = _rows().corpus("some").cases
    assert first.configurations == ("small", "large")
    assert first.seconds.tolist() == [5.0, 1.0]
    np.testing.assert_array_equal(first.metric("cpu_user"), [0.5, np.nan])
    np.testing.assert_allclose(first.metric("cpu_system"), [0.2, 0.1])
    assert first.setting("cpus").tolist() == [1.0, 2.0]
    assert second.seconds.tolist() == [9.0]


def test_a_repeat_that_failed_makes_the_configuration_not_ok() -> None:
    assert _rows().corpus("some").cases[0].ok.tolist() == [False, True]


def test_the_same_application_elsewhere_is_another_case() -> None:
    corpus = _rows(environment=("here", "here", "there", "here")).corpus("some")
    assert [(c.application, c.environment) for c in corpus.cases] == [
        ("a", "here"),
        ("b", "here"),
        ("a", "there"),
    ]


ROW: dict[str, Any] = {
    "environment": "lambda",
    "application": "sort-hash",
    "memory_mb": 256,
    "cpus": 0.5,
    "status": "ok",
    "n": 30,
    "mean_s": 2.0,
    "median_s": 1.9,
    "p95_s": 2.5,
    "p99_s": 2.6,
    "std_s": 0.1,
    "min_s": 1.8,
    "max_s": 2.7,
    "cpu_user_s": 1.0,
    "cpu_system_s": 0.2,
    "voluntary_switches": 10.0,
    "involuntary_switches": 40.0,
    "bytes_read": 0.0,
    "bytes_written": 4096.0,
    "bytes_received": 0.0,
    "bytes_sent": 0.0,
    "memory_peak_bytes": 2.0**26,
    "throttled_s": 0.8,
    "throttled_periods": 8.0,
    "probe_s": 0.05,
}
KILLED = {
    **ROW,
    "memory_mb": 128,
    "cpus": 0.25,
    "status": "out-of-memory",
    "mean_s": 0.0,
    "memory_peak_bytes": 0,
}


def test_metrics_are_per_second_of_run_time(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    path = write_csv(tmp_path / "functions.csv", [ROW, {**ROW, "environment": "openwhisk"}])
    here, there = read_functions(path).cases
    assert (here.environment, there.environment) == ("lambda", "openwhisk")
    assert here.configurations == ("256MB cpus=0.5",)
    shown = {"cpu_user": 0.5, "throttled": 0.4, "bytes_written": 2048.0, "memory_fraction": 0.25}
    assert {name: here.metric(name)[0] for name in shown} == shown
    assert here.metric("probe_seconds")[0] == 0.05


def test_a_function_that_was_killed_is_not_ok_and_its_zeros_are_unknown(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    (case,) = read_functions(write_csv(tmp_path / "functions.csv", [KILLED, ROW])).cases
    assert case.ok.tolist() == [False, True]
    assert np.isnan(case.seconds).tolist() == [True, False]
    assert np.isnan(case.metric("cpu_user")).tolist() == [True, False]
    assert np.isnan(case.metric("memory_used")).tolist() == [True, False]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mean_s": 0}, "line 3, column mean_s: '0'"),
        ({"mean_s": -2}, "line 3, column mean_s: '-2'"),
        ({"mean_s": ""}, "line 3, column mean_s: ''"),
        ({"cpus": "half"}, "line 3, column cpus: 'half'"),
        ({"cpu_user_s": "-"}, "line 3, column cpu_user_s: '-'"),
        ({"status": ""}, "line 3, column status: is empty"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    path = write_csv(tmp_path / "functions.csv", [KILLED, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        read_functions(path)


def test_a_file_in_which_everything_failed_is_refused(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=r"functions\.csv"):
        read_functions(write_csv(tmp_path / "functions.csv", [KILLED]))


def test_a_missing_file_a_folder_or_a_missing_column_is_named(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    with pytest.raises(BadInputError, match=r"none\.csv"):
        read_functions(tmp_path / "none.csv")
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_functions(tmp_path)
    with pytest.raises(BadInputError, match="'probe_s'"):
        read_functions(write_csv(tmp_path / "functions.csv", [ROW], without="probe_s"))


ROW_MULTICLOUD: dict[str, Any] = {
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
ON_A = {
    **ROW_MULTICLOUD,
    "provider": "A",
    "A_family": 0.0,
    "A_vcpu": 0.0,
    "C_family": "",
    "C_type": "",
    "C_vcpu": "",
}
FILE = "multi-cloud-configuration.csv"


def test_a_row_becomes_a_configuration_in_si_units(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    write_csv(tmp_path / FILE, [ROW_MULTICLOUD, ON_A])
    (case,) = read_multicloud(tmp_path).cases
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
    failed = {**ROW_MULTICLOUD, "status": "Timed out.", "target_runtime": 600.0}
    never = {**failed, "workload": "buzz-spectral_clustering"}
    write_csv(tmp_path / "multicloud" / FILE, [ROW_MULTICLOUD, failed, never])
    everything = read_multicloud(tmp_path)
    assert [c.seconds.tolist() for c in everything.cases] == [[360.0], [600.0]]
    assert not everything.cases[0].ok.any()
    completed = read_multicloud(tmp_path, completed_only=True)
    assert [c.seconds.tolist() for c in completed.cases] == [[120.0]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target_runtime": -1}, f"{FILE}, line 3, column target_runtime: '-1'"),
        ({"target_runtime": 0}, "line 3, column target_runtime: '0'"),
        ({"nodes": "many"}, "line 3, column nodes: 'many'"),
        ({"C_type": "highmem"}, "line 3, column C_type: 'highmem'"),
        ({"provider": "D"}, "line 3, column provider: 'D'"),
        ({"workload": ""}, "line 3, column workload: is empty"),
    ],
)
def test_a_bad_multicloud_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / FILE, [ROW_MULTICLOUD, {**ROW_MULTICLOUD, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        read_multicloud(tmp_path)


def test_a_missing_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=FILE):
        read_multicloud(tmp_path)
    write_csv(tmp_path / FILE, [ROW_MULTICLOUD], without="nodes")
    with pytest.raises(BadInputError, match="'nodes'"):
        read_multicloud(tmp_path)


def test_the_published_file_has_30_workloads_of_which_28_complete(shared_data: Path) -> None:
    everything, completed = read_multicloud(shared_data), read_multicloud(shared_data, completed_only=True)
    assert (len(everything.cases), len(everything.applications)) == (30, 10)
    assert len({key for case in everything.cases for key in case.configurations}) == 82
    gone = {c.name for c in everything.cases} - {c.name for c in completed.cases}
    assert gone == {"buzz-spectral_clustering", "santander-spectral_clustering"}


ROW_SCOUT: dict[str, Any] = {
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
    write_csv(tmp_path / "scout_multi_node.csv", [ROW_SCOUT, {**ROW_SCOUT, "n_nodes": 8, "completed": False}])
    (case,) = read_scout(tmp_path).cases
    assert (case.application, case.name) == ("terasort", "terasort-hadoop-huge")
    assert case.configurations == ("c4.large nodes=4", "c4.large nodes=8")
    assert case.ok.tolist() == [True, False]
    assert case.setting("generation")[0] == 4.0
    assert case.setting("memory_bytes")[0] == 3.75 * 2**30
    shown = {"cpu_user": 1.0, "bytes_read": 1024.0, "bytes_sent": 2048.0, "memory_used": 2.0**20}
    assert {name: case.metric(name)[0] for name in shown} == shown
    assert np.isnan(case.metric("throttled")).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"elapsed_s": 0}, "line 3, column elapsed_s: '0'"),
        ({"elapsed_s": ""}, "line 3, column elapsed_s: ''"),
        ({"completed": "yes"}, "line 3, column completed: 'yes'"),
        ({"vm": "large"}, "line 3, column vm: 'large'"),
        ({"cpu_pct_usr_mean": "high"}, "line 3, column cpu_pct_usr_mean: 'high'"),
    ],
)
def test_a_bad_scout_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / "scout_multi_node.csv", [ROW_SCOUT, {**ROW_SCOUT, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        read_scout(tmp_path)


def test_a_missing_scout_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=r"scout_multi_node\.csv"):
        read_scout(tmp_path)
    write_csv(tmp_path / "scout_multi_node.csv", [ROW_SCOUT], without="vm_vcpus")
    with pytest.raises(BadInputError, match="'vm_vcpus'"):
        read_scout(tmp_path)


def test_the_published_files_are_read_whole(shared_data: Path) -> None:
    clusters = read_scout(shared_data)
    assert (len(clusters.cases), {len(c) for c in clusters.cases}) == (18, {69})
    assert sum(int((~c.ok).sum()) for c in clusters.cases) == 75


ROW_GAVEL: dict[str, Any] = {
    "source": "simulation",
    "accelerator": "k80",
    "consolidated": True,
    "model": "ResNet-18",
    "batch_size": 16.0,
    "num_gpus": 2,
    "other_model": "",
    "steps_per_s": 4.0,
}
FILE_GAVEL = "gavel_throughputs.csv"


def test_only_jobs_alone_that_were_measured_are_read(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    rows = [
        ROW_GAVEL,
        {**ROW_GAVEL, "accelerator": "v100", "consolidated": False, "steps_per_s": 20.0},
        {**ROW_GAVEL, "num_gpus": 4, "steps_per_s": 0.0},
        {**ROW_GAVEL, "num_gpus": 8, "other_model": "A3C"},
        {**ROW_GAVEL, "source": "physical_cluster", "steps_per_s": 5.0},
        {**ROW_GAVEL, "model": "A3C", "batch_size": ""},
    ]
    write_csv(tmp_path / FILE_GAVEL, rows)
    first, second = read_gavel(tmp_path).cases
    assert (first.application, first.name) == ("ResNet-18", "ResNet-18 batch=16")
    assert first.configurations == ("k80 gpus=2 consolidated", "v100 gpus=2 spread")
    np.testing.assert_allclose(first.seconds, [0.25, 0.05])
    assert first.setting("accelerator_bandwidth").tolist() == [240e9, 900e9]
    assert (second.name, np.isnan(second.setting("batch_size")[0])) == ("A3C", True)
    assert read_gavel(tmp_path, source="physical_cluster").cases[0].seconds.tolist() == [0.2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps_per_s": -1}, "line 3, column steps_per_s: '-1'"),
        ({"steps_per_s": "fast"}, "line 3, column steps_per_s: 'fast'"),
        ({"batch_size": "big"}, "line 3, column batch_size: 'big'"),
        ({"accelerator": "k8O"}, "line 3, column accelerator: .*k8O"),
        ({"consolidated": ""}, "line 3, column consolidated: ''"),
    ],
)
def test_a_bad_gavel_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / FILE_GAVEL, [ROW_GAVEL, {**ROW_GAVEL, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        read_gavel(tmp_path)


def test_a_missing_file_column_or_source_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=FILE_GAVEL):
        read_gavel(tmp_path)
    write_csv(tmp_path / FILE_GAVEL, [ROW_GAVEL])
    with pytest.raises(BadInputError, match="dreamt"):
        read_gavel(tmp_path, source="dreamt")
    write_csv(tmp_path / FILE_GAVEL, [ROW_GAVEL], without="num_gpus")
    with pytest.raises(BadInputError, match="'num_gpus'"):
        read_gavel(tmp_path)


def test_the_published_file_has_26_jobs_of_7_models(shared_data: Path) -> None:
    corpus = read_gavel(shared_data)
    assert (len(corpus.cases), len(corpus.applications)) == (26, 7)


def test_the_bundled_steps_are_a_case_per_model() -> None:
    corpus = read_steps(BUNDLED_STEPS)
    assert len(corpus.cases) == len(corpus.applications) == 28
    case = next(c for c in corpus.cases if c.name == "resnet50")
    assert "H200 train bf16 batch=64" in case.configurations
    on_cpu = np.array([key.startswith("cpu") for key in case.configurations])
    assert case.setting("accelerators").tolist() == (~on_cpu).astype(float).tolist()
    assert np.isnan(case.setting("accelerator_flops")).tolist() == on_cpu.tolist()


def test_a_step_out_of_memory_is_not_ok_and_has_no_time() -> None:
    cases = read_steps(BUNDLED_STEPS).cases
    assert any((~case.ok).any() for case in cases)
    for case in cases:
        assert np.isnan(case.seconds).tolist() == (~case.ok).tolist()


def test_a_missing_file_or_an_unknown_gpu_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"steps\.csv"):
        read_steps(tmp_path)
    with pytest.raises(NotFoundError, match="H2000"):
        read_steps(BUNDLED_STEPS, gpu="H2000")
