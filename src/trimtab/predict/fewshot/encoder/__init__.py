"""One encoder for all data sets: known runs become an embedding that says what is alike and what follows.

It learns with PyTorch and is used with NumPy alone.
"""

from trimtab.predict.fewshot.encoder.adaptation import Adapted, adapt, missed_by
from trimtab.predict.fewshot.encoder.distance import Acquaintance, Neighbourhood, quantiles, unseen_distances
from trimtab.predict.fewshot.encoder.episodes import leaving_out
from trimtab.predict.fewshot.encoder.member import ENCODER, CrossFitted, application_folds
from trimtab.predict.fewshot.encoder.network import SHAPES, Encoder
from trimtab.predict.fewshot.encoder.shared import Shared
from trimtab.predict.fewshot.encoder.training import EncoderSettings, train

__all__ = [
    "ENCODER",
    "SHAPES",
    "Acquaintance",
    "Adapted",
    "CrossFitted",
    "Encoder",
    "EncoderSettings",
    "Neighbourhood",
    "Shared",
    "adapt",
    "application_folds",
    "leaving_out",
    "missed_by",
    "quantiles",
    "train",
    "unseen_distances",
]
