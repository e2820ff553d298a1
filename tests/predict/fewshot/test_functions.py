from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import functions

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
    here, there = functions.read(path).cases
    assert (here.environment, there.environment) == ("lambda", "openwhisk")
    assert here.configurations == ("256MB cpus=0.5",)
    shown = {"cpu_user": 0.5, "throttled": 0.4, "bytes_written": 2048.0, "memory_fraction": 0.25}
    assert {name: here.metric(name)[0] for name in shown} == shown
    assert here.metric("probe_seconds")[0] == 0.05


def test_a_function_that_was_killed_is_not_ok_and_its_zeros_are_unknown(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    (case,) = functions.read(write_csv(tmp_path / "functions.csv", [KILLED, ROW])).cases
    assert case.ok.tolist() == [False, True]
    assert np.isnan(case.seconds).tolist() == [True, False]
    assert np.isnan(case.metric("cpu_user")).tolist() == [True, False]
    assert np.isnan(case.metric("memory_used")).tolist() == [True, False]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mean_s": 0}, "line 3, column mean_s: '0' is not a number above zero"),
        ({"mean_s": -2}, "line 3, column mean_s: '-2' is not a number above zero"),
        ({"mean_s": ""}, "line 3, column mean_s: '' is not a number above zero"),
        ({"cpus": "half"}, "line 3, column cpus: 'half' is not a number"),
        ({"cpu_user_s": "-"}, "line 3, column cpu_user_s: '-' is not a number"),
        ({"status": ""}, "line 3, column status: is empty"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    path = write_csv(tmp_path / "functions.csv", [KILLED, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        functions.read(path)


def test_a_file_in_which_everything_failed_is_refused(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match="has no row whose status is ok"):
        functions.read(write_csv(tmp_path / "functions.csv", [KILLED]))


def test_a_missing_file_a_folder_or_a_missing_column_is_named(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    with pytest.raises(BadInputError, match=r"none\.csv does not exist"):
        functions.read(tmp_path / "none.csv")
    with pytest.raises(BadInputError, match="is a folder; give the CSV file"):
        functions.read(tmp_path)
    with pytest.raises(BadInputError, match="has no column 'probe_s'"):
        functions.read(write_csv(tmp_path / "functions.csv", [ROW], without="probe_s"))
