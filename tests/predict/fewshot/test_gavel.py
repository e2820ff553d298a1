from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import gavel

ROW: dict[str, Any] = {
    "source": "simulation",
    "accelerator": "k80",
    "consolidated": True,
    "model": "ResNet-18",
    "batch_size": 16.0,
    "num_gpus": 2,
    "other_model": "",
    "steps_per_s": 4.0,
}
FILE = "gavel_throughputs.csv"


def test_only_jobs_alone_that_were_measured_are_read(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    rows = [
        ROW,
        {**ROW, "accelerator": "v100", "consolidated": False, "steps_per_s": 20.0},
        {**ROW, "num_gpus": 4, "steps_per_s": 0.0},
        {**ROW, "num_gpus": 8, "other_model": "A3C"},
        {**ROW, "source": "physical_cluster", "steps_per_s": 5.0},
        {**ROW, "model": "A3C", "batch_size": ""},
    ]
    write_csv(tmp_path / FILE, rows)
    first, second = gavel.read(tmp_path).cases
    assert (first.application, first.name) == ("ResNet-18", "ResNet-18 batch=16")
    assert first.configurations == ("k80 gpus=2 consolidated", "v100 gpus=2 spread")
    np.testing.assert_allclose(first.seconds, [0.25, 0.05])
    assert first.setting("accelerator_bandwidth").tolist() == [240e9, 900e9]
    assert (second.name, np.isnan(second.setting("batch_size")[0])) == ("A3C", True)
    assert gavel.read(tmp_path, source="physical_cluster").cases[0].seconds.tolist() == [0.2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps_per_s": -1}, "line 3, column steps_per_s: '-1' is not a number above zero"),
        ({"steps_per_s": "fast"}, "line 3, column steps_per_s: 'fast' is not a number"),
        ({"batch_size": "big"}, "line 3, column batch_size: 'big' is not a number"),
        ({"accelerator": "k8O"}, "line 3, column accelerator: .*k8O"),
        ({"consolidated": ""}, "line 3, column consolidated: '' is neither True nor False"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    write_csv(tmp_path / FILE, [ROW, {**ROW, **changes}])
    with pytest.raises(BadInputError, match=sentence):
        gavel.read(tmp_path)


def test_a_missing_file_column_or_source_is_named(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=f"has a file {FILE}"):
        gavel.read(tmp_path)
    write_csv(tmp_path / FILE, [ROW])
    with pytest.raises(BadInputError, match="has no row of a job alone from dreamt"):
        gavel.read(tmp_path, source="dreamt")
    write_csv(tmp_path / FILE, [ROW], without="num_gpus")
    with pytest.raises(BadInputError, match="has no column 'num_gpus'"):
        gavel.read(tmp_path)


def test_the_published_file_has_26_jobs_of_7_models(shared_data: Path) -> None:
    corpus = gavel.read(shared_data)
    assert (len(corpus.cases), len(corpus.applications)) == (26, 7)
