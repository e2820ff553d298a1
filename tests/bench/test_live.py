"""The bench that goes the whole way does go it: profile, estimate, run, compare."""

import pytest
from trimtab_bench import BenchOptions, run_bench, zoo

pytest.importorskip("torch", reason="the bench trains with PyTorch")


def test_a_model_is_profiled_estimated_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "MODELS", ("wide-dense",))
    result = run_bench("live", BenchOptions(quiet=True))
    on_cpu = [row for row in result.tables[0].rows if row[1] == "cpu"]
    assert [row[0] for row in on_cpu] == ["wide-dense"]
    # Not how good: on a busy machine the two runs differ by whatever else is running.
    assert 0 <= result.figures["cpu_step_median_ape"] < 20.0


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_architecture_takes_a_step(name: str) -> None:
    found = zoo.train(name, "cpu", steps=1, batch=1, precision="tf32")
    assert found["seconds"] > 0
