"""Functions as a cloud runs them: made up from segments, run in real control groups, measured."""

from trimtab.observe.functions.collection import SIZES, Collection, collect_functions
from trimtab.observe.functions.effort import Effort
from trimtab.observe.functions.law import LAWS
from trimtab.observe.functions.measurement import COLUMNS, Measurement

__all__ = ["COLUMNS", "LAWS", "SIZES", "Collection", "Effort", "Measurement", "collect_functions"]
