"""What would happen if…? Rules and, beside them, learned models: estimates with ranges and reasons."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.predict.analytic import AnalyticEstimator, Placements, StepEstimates
    from trimtab.predict.calibrated import calibration
    from trimtab.predict.constants import Calibration
    from trimtab.predict.cpu import cpu_step_time
    from trimtab.predict.demand import demand_of
    from trimtab.predict.fit import (
        calibrate,
        calibration_data,
        cases,
        fit_constants,
        fit_cpu_constants,
        leave_one_model_out,
        predict_memory,
        predict_seconds,
        ranges_without_the_model,
    )
    from trimtab.predict.measurements import MeasuredStep, read_measurements
    from trimtab.predict.scale_out import ScaleOutAssumptions, restart_factor

__all__ = [
    "AnalyticEstimator",
    "Calibration",
    "MeasuredStep",
    "Placements",
    "ScaleOutAssumptions",
    "StepEstimates",
    "calibrate",
    "calibration",
    "calibration_data",
    "cases",
    "cpu_step_time",
    "demand_of",
    "fit_constants",
    "fit_cpu_constants",
    "leave_one_model_out",
    "predict_memory",
    "predict_seconds",
    "ranges_without_the_model",
    "read_measurements",
    "restart_factor",
]

# Only fitting needs SciPy; whoever estimates does not wait for it.
_ROOMS = {
    "AnalyticEstimator": "analytic",
    "Calibration": "constants",
    "MeasuredStep": "measurements",
    "Placements": "analytic",
    "ScaleOutAssumptions": "scale_out",
    "StepEstimates": "analytic",
    "calibrate": "fit",
    "calibration": "calibrated",
    "calibration_data": "fit",
    "cases": "fit",
    "cpu_step_time": "cpu",
    "demand_of": "demand",
    "fit_constants": "fit",
    "fit_cpu_constants": "fit",
    "leave_one_model_out": "fit",
    "predict_memory": "fit",
    "predict_seconds": "fit",
    "ranges_without_the_model": "fit",
    "read_measurements": "measurements",
    "restart_factor": "scale_out",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
