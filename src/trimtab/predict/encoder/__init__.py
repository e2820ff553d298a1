"""One encoder for all data sets: known runs become an embedding that says what is alike and what follows.

It learns with PyTorch and is used with NumPy alone.
"""

from trimtab.predict.encoder.adaptation import Adapted, adapt, missed_by
from trimtab.predict.encoder.distance import Acquaintance, Neighbourhood, quantiles, unseen_distances
from trimtab.predict.encoder.episodes import leaving_out
from trimtab.predict.encoder.member import ENCODER, CrossFitted, application_folds
from trimtab.predict.encoder.network import SHAPES, Encoder
from trimtab.predict.encoder.shared import Shared
from trimtab.predict.encoder.training import EncoderSettings, train

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
