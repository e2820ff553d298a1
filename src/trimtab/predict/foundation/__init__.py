"""What ships learned: predictors fitted to several data sets, in one file, and a guard in front of them."""

from trimtab.predict.foundation.decision import Line, prediction_decision, prediction_lines
from trimtab.predict.foundation.guard import Guarded, guarded
from trimtab.predict.foundation.model import Foundation, load_foundation, shipped_foundation
from trimtab.predict.foundation.prediction import Prediction, predict
from trimtab.predict.foundation.pretrain import pretrain
from trimtab.predict.foundation.request import Request, read_request
from trimtab.predict.foundation.words import cost_scale, explained

__all__ = [
    "Foundation",
    "Guarded",
    "Line",
    "Prediction",
    "Request",
    "cost_scale",
    "explained",
    "guarded",
    "load_foundation",
    "predict",
    "prediction_decision",
    "prediction_lines",
    "prediction_report",
    "pretrain",
    "read_request",
    "shipped_foundation",
]


def prediction_report(answer: Prediction, decision_id: str = "") -> str:
    """The prediction as one HTML page; only this needs Plotly."""
    from trimtab.predict.foundation.report import report

    return report(answer, decision_id)
