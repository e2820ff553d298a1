"""The bench of durations: the model beats the rule on real jobs, and ranges hold."""

import os
from pathlib import Path

import pytest
from trimtab_bench import BenchOptions, run_bench

from trimtab.core import BadInputError

DATA = Path(os.environ.get("TRIMTAB_DATA") or Path(__file__).parents[3] / "shared" / "data")


def test_it_says_which_data_it_needs() -> None:
    with pytest.raises(BadInputError, match="--data"):
        run_bench("durations", BenchOptions(quiet=True))


@pytest.mark.skipif(not (DATA / "goodput").is_dir(), reason="needs the data sets goodput and gpu-throughput")
def test_the_model_knows_more_than_the_rule_and_ranges_hold() -> None:
    figures = run_bench("durations", BenchOptions(quick=True, quiet=True, data=DATA)).figures
    arrival = figures["philly"]["0"]
    assert arrival["error"]["model"] < 0.8 * arrival["error"]["rule"]
    assert arrival["error"]["guard"] < 0.8 * arrival["error"]["rule"]
    assert figures["left_many_ms"] < 100.0
    for trace in (figures["philly"], figures["gavel"]):
        assert trace["0"]["coverage"]["guard"] > 0.88
        assert trace["0"]["error"]["guard"] < 1.05 * min(
            trace["0"]["error"][who] for who in ("rule", "model")
        )
