"""What failing costs a job, measured on one that fails."""

from collections.abc import Callable

import pytest
from trimtab_bench.fabric.gloo_jobs import Job, measure_costs
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.core import TrimtabError
from trimtab.core.units import HOUR
from trimtab.fabric import Assumption, Question, advise


def test_costs_are_measured_and_can_be_asked_about(counting: Callable[..., Job]) -> None:
    costs, done = measure_costs(counting("--steps", 30, "--pause", 0.01), steps_per_epoch=100, limit=60.0)
    assert [run.failure for run in done.runs] == ["rank 1 was killed by SIGKILL", ""]
    assert len(costs.initialisation.seconds) == 2
    assert min(costs.initialisation.seconds) > 0.0
    assert costs.step > 0.005
    assert costs.epoch == pytest.approx(100 * costs.step)
    assert costs.saving.mean == pytest.approx(0.001)
    assert costs.loading.seconds == (0.002,)
    advice = advise(
        Question(
            1024,
            Assumption.given(2.5 / HOUR),
            saving=costs.saving.assumption(),
            restarting=costs.initialisation.assumption(),
        )
    )
    assert advice.question.restarting.reason == "measured 2 times"
    least, most = min(costs.initialisation.seconds), max(costs.initialisation.seconds)
    assert costs.options == f"--saving 0.0010s..0.0010s --restarting {least:.4f}s..{most:.4f}s"
    assert CliRunner().invoke(app, ["fabric", "advise", "1024", *costs.options.split()]).exit_code == 0


def test_a_job_that_ends_too_soon_cannot_be_measured(counting: Callable[..., Job]) -> None:
    with pytest.raises(TrimtabError, match="ended before step 3"):
        measure_costs(counting("--steps", 2), steps_per_epoch=1, limit=60.0)
    with pytest.raises(TrimtabError, match="step 1 went wrong"):
        measure_costs(counting("--fail-at", 1), steps_per_epoch=1, limit=60.0)
