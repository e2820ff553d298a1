"""What ships learned: predictors fitted to several data sets, in one file, and a guard in front of them."""

from trimtab.predict.foundation.decision import Line, prediction_decision, prediction_lines
from trimtab.predict.foundation.drift import drift_after
from trimtab.predict.foundation.examples import (
    asked_in,
    believable,
    catch_up,
    compared,
    measured_after,
    measured_in,
    note_outcome,
    quantity_at,
    remember,
)
from trimtab.predict.foundation.finding import Finding, raise_events
from trimtab.predict.foundation.guard import Guarded, guarded
from trimtab.predict.foundation.model import Foundation, load_foundation, shipped_foundation
from trimtab.predict.foundation.prediction import Prediction, predict
from trimtab.predict.foundation.pretrain import pretrain
from trimtab.predict.foundation.request import Request, read_request
from trimtab.predict.foundation.surroundings import all_drift
from trimtab.predict.foundation.update import Comparison, Plan, plan_update, update_weights
from trimtab.predict.foundation.versions import (
    SHIPPED_VERSION,
    Current,
    Versions,
    current_foundation,
    version_name,
)
from trimtab.predict.foundation.words import cost_scale, explained

__all__ = [
    "SHIPPED_VERSION",
    "Comparison",
    "Current",
    "Finding",
    "Foundation",
    "Guarded",
    "Line",
    "Plan",
    "Prediction",
    "Request",
    "Versions",
    "all_drift",
    "asked_in",
    "believable",
    "catch_up",
    "compared",
    "cost_scale",
    "current_foundation",
    "drift_after",
    "explained",
    "guarded",
    "load_foundation",
    "measured_after",
    "measured_in",
    "note_outcome",
    "plan_update",
    "predict",
    "prediction_decision",
    "prediction_lines",
    "prediction_report",
    "pretrain",
    "quantity_at",
    "raise_events",
    "read_request",
    "remember",
    "shipped_foundation",
    "update_weights",
    "version_name",
]


def prediction_report(answer: Prediction, decision_id: str = "") -> str:
    """The prediction as one HTML page; only this needs Plotly."""
    from trimtab.predict.foundation.report import report

    return report(answer, decision_id)
