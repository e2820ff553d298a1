"""The overhead bench measures the listener, and would notice an expensive one."""

import pytest
from trimtab_bench import BenchOptions, profile_overhead, run_bench

pytest.importorskip("torch", reason="the bench trains with PyTorch")


def test_it_reports_the_listener_beside_a_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_overhead, "CASES", {"small": 12})
    result = run_bench("profile-overhead", BenchOptions(quick=True, quiet=True))
    assert result.figures["small_triples"] == 24
    assert result.figures["small_step"] > 0
    assert -0.9 < result.figures["small_overhead"] < 0.5
    assert result.baselines["cProfile"].keys() == {"small"}


def test_a_listener_that_doubles_the_step_would_show() -> None:
    found = profile_overhead._figures([{"off": 1.0, "on": 2.0, "again": 1.0}] * 5)
    assert found["overhead"] == pytest.approx(1.0)
    assert found["control"] == pytest.approx(0.0)
