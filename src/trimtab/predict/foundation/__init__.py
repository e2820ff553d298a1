"""What ships learned: predictors fitted to several data sets, in one file, and a guard in front of them."""

from trimtab.predict.foundation.decision import Line, prediction_decision, prediction_lines
from trimtab.predict.foundation.guard import Guarded, guarded
from trimtab.predict.foundation.model import Foundation, load_foundation, shipped_foundation
from trimtab.predict.foundation.pretrain import pretrain
from trimtab.predict.foundation.request import Request, read_request

__all__ = [
    "Foundation",
    "Guarded",
    "Line",
    "Request",
    "guarded",
    "load_foundation",
    "prediction_decision",
    "prediction_lines",
    "pretrain",
    "read_request",
    "shipped_foundation",
]
