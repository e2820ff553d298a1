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
        Line,
        Prediction,
        Request,
        cost_scale,
        explained,
        guarded,
        load_foundation,
        predict,
        prediction_decision,
        prediction_lines,
        prediction_report,
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
    "Line",
    "MeasuredStep",
    "Placements",
    "Prediction",
    "Request",
    "ScaleOutAssumptions",
    "StepEstimates",
    "calibrate",
    "calibration",
    "calibration_data",
    "cases",
    "cost_scale",
    "cpu_step_time",
    "demand_of",
    "explained",
    "fit_constants",
    "fit_cpu_constants",
    "guarded",
    "leave_one_model_out",
    "load_foundation",
    "predict",
    "predict_memory",
    "predict_seconds",
    "prediction_decision",
    "prediction_lines",
    "prediction_report",
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
    "Line": "foundation",
    "MeasuredStep": "measurements",
    "Placements": "analytic",
    "Prediction": "foundation",
    "Request": "foundation",
    "ScaleOutAssumptions": "scale_out",
    "StepEstimates": "analytic",
    "calibrate": "fit",
    "calibration": "calibrated",
    "calibration_data": "fit",
    "cases": "fit",
    "cost_scale": "foundation",
    "cpu_step_time": "cpu",
    "demand_of": "demand",
    "explained": "foundation",
    "fit_constants": "fit",
    "fit_cpu_constants": "fit",
    "guarded": "foundation",
    "leave_one_model_out": "fit",
    "load_foundation": "foundation",
    "predict": "foundation",
    "predict_memory": "fit",
    "predict_seconds": "fit",
    "prediction_decision": "foundation",
    "prediction_lines": "foundation",
    "prediction_report": "foundation",
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
