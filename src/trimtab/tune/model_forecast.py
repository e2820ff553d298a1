"""The learned model's forecast of a job: its local run, other jobs, and its own trials."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.predict import Array, Configurations, LocalJob, Ours, Trial, forecast
from trimtab.tune.forecast_search import Forecasted
from trimtab.tune.observation import Observation


@dataclass(frozen=True, slots=True, eq=False)
class ModelForecast:
    """Behind its guard, so that the rule answers where the model should not; `steps` are of the whole job."""

    ours: Ours
    local: LocalJob
    where: Configurations
    steps: Array

    def given(self, seen: Sequence[Observation]) -> Forecasted:
        tried = [
            Trial(one.row, one.seconds / float(self.steps[one.row]), one.ok, one.fidelity)
            for one in seen
            if one.ok or wanted_memory(one)
        ]
        said = forecast(self.ours, self.local, self.where, tried)
        runs = said.fits.copy()
        for one in seen:
            runs[one.row] = float(one.ok)
        return Forecasted(
            said.low * self.steps,
            said.value * self.steps,
            said.high * self.steps,
            said.belief.deviation,
            runs,
            said.by,
            said.reasons,
        )


def wanted_memory(seen: Observation) -> bool:
    """Whether a trial failed for want of memory, which says something of other configurations too."""
    return not seen.ok and seen.metrics.get("memory_fraction", 0.0) >= 1
