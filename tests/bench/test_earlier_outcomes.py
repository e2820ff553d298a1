"""Outcomes on one GPU carry over to others, as somebody else measured them."""

import gzip
from pathlib import Path

import pytest
from trimtab_bench.earlier_outcomes import transfer_figures

from trimtab.core import BadInputError


def test_an_outcome_helps_on_its_own_gpu_and_does_little_harm_on_others(shared_data: Path) -> None:
    figures = transfer_figures(shared_data)
    for name, change in (("same_gpu", -0.05), ("other_gpu", 0.05)):
        rule, guarded = (figures[f"transfer_{name}{who}_mean_ape"] for who in ("_rule", ""))
        assert rule < 0.3
        assert guarded < rule + change
        assert figures[f"transfer_{name}_held"] >= 0.9


def test_without_the_data_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert transfer_figures(tmp_path) == {}


@pytest.mark.parametrize(
    "content",
    [b"not gzip", gzip.compress(b"menu,price\nsoup,3\n", mtime=0)],  # test workers must agree on its name
    ids=["no archive", "another table"],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gpu-throughput").mkdir()
    (tmp_path / "gpu-throughput" / "gavel_throughputs.csv.gz").write_bytes(content)
    with pytest.raises(BadInputError, match="gavel_throughputs"):
        transfer_figures(tmp_path)
