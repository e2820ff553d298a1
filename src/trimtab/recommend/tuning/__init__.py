"""Which configuration to try next: searches that learn from trials, and ours also from other workloads.

A method is a file with a class, and a line in `METHODS`.
"""

from trimtab.recommend.tuning.method import Belief, Choice, Method, Search, Stop, best_row
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.random_search import RandomSearch
from trimtab.recommend.tuning.space import Space

__all__ = [
    "METHODS",
    "Belief",
    "Choice",
    "Method",
    "Observation",
    "Search",
    "Space",
    "Stop",
    "best_row",
]

METHODS: dict[str, Method] = {method.name: method for method in (RandomSearch(),)}
