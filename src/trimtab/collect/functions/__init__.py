"""Functions as a cloud runs them: made up from segments, run in real control groups, measured."""

from trimtab.collect.functions.collection import SIZES, Collection, collect_functions
from trimtab.collect.functions.effort import Effort
from trimtab.collect.functions.law import LAWS
from trimtab.collect.functions.measurement import COLUMNS, Measurement

__all__ = ["COLUMNS", "LAWS", "SIZES", "Collection", "Effort", "Measurement", "collect_functions"]
