"""Costs of a failure, measured on a job that fails."""

from collections.abc import Callable

import pytest
from trimtab_bench.fabric.gloo_jobs import GlooJob, measure_costs
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.core import TrimtabError


def test_costs_are_measured_and_can_be_asked_about(counting: Callable[..., GlooJob]) -> None:
    costs, done = measure_costs(counting("--steps", 30, "--pause", 0.01), steps_per_epoch=100, limit=60.0)
    first, second = (run.failure for run in done.runs)
    assert "rank 1" in first
    assert "SIGKILL" in first
    assert second == ""
    assert len(costs.initialisation) == 2
    assert min(costs.initialisation) > 0.0
    assert costs.step > 0.005
    assert costs.epoch == pytest.approx(100 * costs.step)
    assert set(costs.saving) == {0.001}
    assert costs.loading == (0.002,)
    least, most = min(costs.initialisation), max(costs.initialisation)
    assert costs.options == f"--saving 0.0010s..0.0010s --restarting {least:.4f}s..{most:.4f}s"
    assert CliRunner().invoke(app, ["fabric", "advise", "1024", *costs.options.split()]).exit_code == 0


def test_a_job_that_ends_too_soon_cannot_be_measured(counting: Callable[..., GlooJob]) -> None:
    with pytest.raises(TrimtabError, match="step 3"):
        measure_costs(counting("--steps", 2), steps_per_epoch=1, limit=60.0)
    with pytest.raises(TrimtabError, match="step 1"):
        measure_costs(counting("--fail-at", 1), steps_per_epoch=1, limit=60.0)
