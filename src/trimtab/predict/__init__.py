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
    from trimtab.predict.foundation import (
        Foundation,
        Guarded,
        Request,
        guarded,
        load_foundation,
        prediction_decision,
        prediction_lines,
        pretrain,
        read_request,
        shipped_foundation,
    )
    from trimtab.predict.measurements import MeasuredStep, read_measurements
    from trimtab.predict.scale_out import ScaleOutAssumptions, restart_factor

__all__ = [
    "AnalyticEstimator",
    "Calibration",
    "Foundation",
    "Guarded",
    "MeasuredStep",
    "Placements",
    "Request",
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
    "guarded",
    "leave_one_model_out",
    "load_foundation",
    "predict_memory",
    "predict_seconds",
    "prediction_decision",
    "prediction_lines",
    "pretrain",
    "ranges_without_the_model",
    "read_measurements",
    "read_request",
    "restart_factor",
    "shipped_foundation",
]

# Only fitting needs SciPy; whoever estimates does not wait for it.
_ROOMS = {
    "AnalyticEstimator": "analytic",
    "Calibration": "constants",
    "Foundation": "foundation",
    "Guarded": "foundation",
    "MeasuredStep": "measurements",
    "Placements": "analytic",
    "Request": "foundation",
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
    "guarded": "foundation",
    "leave_one_model_out": "fit",
    "load_foundation": "foundation",
    "predict_memory": "fit",
    "predict_seconds": "fit",
    "prediction_decision": "foundation",
    "prediction_lines": "foundation",
    "pretrain": "foundation",
    "ranges_without_the_model": "fit",
    "read_measurements": "measurements",
    "read_request": "foundation",
    "restart_factor": "scale_out",
    "shipped_foundation": "foundation",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
