from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import serverless

ROW: dict[str, Any] = {
    "source": "real",
    "runtime": "python",
    "app": "matmul",
    "memory_mb": 128,
    "repetition": 0,
    "dur_mean": 500.0,
    "dur_median": 450.0,
    "dur_std": 100.0,
    "dur_min": 400.0,
    "userDiff_mean": 250_000.0,
    "sysDiff_mean": 50_000.0,
    "vContextSwitches_mean": 5.0,
    "ivContextSwitches_mean": 1.0,
    "fsRead_mean": 2.0,
    "fsWrite_mean": 1.0,
    "netByRx_mean": 100.0,
    "netByTx_mean": 50.0,
    "heapUsed_mean": 1e6,
    "maxRss_mean": 1024.0,
    "rss_mean": 7.0,
}
FILE = "serverless_memory.csv"


def test_metrics_are_per_second_of_run_time(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    in_node = {**ROW, "source": "synthetic", "runtime": "nodejs", "rss_mean": 2.0**25}
    write_csv(tmp_path / FILE, [ROW, in_node, {**ROW, "repetition": 1}])
    python, node, other = serverless.read(tmp_path).cases
    assert (python.application, python.name, python.environment) == ("real/matmul", "matmul-0", "real")
    assert (node.application, node.environment) == ("synthetic/matmul", "synthetic")
    assert other.name == "matmul-1"
    assert python.configurations == ("128MB",)
    shown = {"cpu_user": 0.5, "context_switches": 10.0, "bytes_read": 2048.0, "memory_used": 2.0**20}
    shown |= {"seconds_median": 0.9, "seconds_deviation": 0.2, "seconds_least": 0.8}
    assert {name: python.metric(name)[0] for name in shown} == shown
    assert node.metric("memory_fraction")[0] == 0.25


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dur_mean": 0}, "line 3, column dur_mean: '0' is not a number above zero"),
        ({"memory_mb": "128m"}, "line 3, column memory_mb: '128m' is not a number"),
        ({"app": ""}, "line 3, column app: is empty"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / FILE, [ROW, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        serverless.read(tmp_path)


def test_a_missing_file_or_column_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=f"has a file {FILE}"):
        serverless.read(tmp_path)
    write_csv(tmp_path / FILE, [ROW], without="dur_mean")
    with pytest.raises(BadInputError, match="has no column 'dur_mean'"):
        serverless.read(tmp_path)


def test_the_published_file_has_66_real_cases_and_30_synthetic(shared_data: Path) -> None:
    corpus = serverless.read(shared_data)
    assert [len(corpus.within(where).cases) for where in ("real", "synthetic")] == [66, 30]
    assert len(corpus.within("real").applications) == 22
