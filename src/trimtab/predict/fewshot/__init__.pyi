from .case import Case as Case, Corpus as Corpus
from .covariance import CurveModel as CurveModel
from .curves import Curves as Curves, FittedCurves as FittedCurves
from .evaluation import (
    backtest as backtest,
    predictions as predictions,
    spread_predictions as spread_predictions,
)
from .flash import Flash as Flash
from .forest import Forest as Forest, ForestSettings as ForestSettings
from .functions import BUNDLED_FUNCTIONS as BUNDLED_FUNCTIONS
from .leaves import FEATURES as FEATURES, FittedLeaves as FittedLeaves, Leaves as Leaves
from .matrix import TimeMatrix as TimeMatrix, distances as distances
from .ours import OURS as OURS, FittedOurs as FittedOurs, Ours as Ours
from .predictor import Fitted as Fitted, Predictor as Predictor, Rows as Rows
from .protocol import Episode as Episode, Fold as Fold
from .rules import (
    RULES as RULES,
    FittedMedianRatio as FittedMedianRatio,
    FittedNearestWorkloads as FittedNearestWorkloads,
    FittedScaledProfile as FittedScaledProfile,
    Interpolation as Interpolation,
    MeanOfKnown as MeanOfKnown,
    MedianRatio as MedianRatio,
    NearestKnown as NearestKnown,
    NearestWorkloads as NearestWorkloads,
    ScaledProfile as ScaledProfile,
)
from .schema import (
    METRICS as METRICS,
    SCALES as SCALES,
    SETTINGS as SETTINGS,
    Array as Array,
    metrics_table as metrics_table,
    settings_table as settings_table,
)
from .scores import Predictions as Predictions, Scores as Scores, combine as combine, score as score
from .sizeless import Sizeless as Sizeless
from .spread import Spread as Spread
from .stretch import Stretch as Stretch
from .trees import Trees as Trees
