"""Which configuration to try next: searches that learn from trials, and ours also from other workloads."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.recommend.tuning.method import Belief, Choice, Method, Search, Stop, best_row
from trimtab.recommend.tuning.methods import METHODS
from trimtab.recommend.tuning.methods.cherrypick import CherryPick
from trimtab.recommend.tuning.methods.ernest import Ernest
from trimtab.recommend.tuning.methods.ours import Ours
from trimtab.recommend.tuning.methods.random_search import RandomSearch
from trimtab.recommend.tuning.methods.trees import Trees
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.space import Space

if TYPE_CHECKING:
    from trimtab.recommend.tuning.job_source import JobSource
    from trimtab.recommend.tuning.job_tuning import Asked, News, tune
    from trimtab.recommend.tuning.opinion import Opinion, span
    from trimtab.recommend.tuning.ranking import Ranking, rank
    from trimtab.recommend.tuning.ranking_words import evidence_detail, explain_opinion, fits_words
    from trimtab.recommend.tuning.session import Begun, Done, Limits, Tuned
    from trimtab.recommend.tuning.trials import Trial

__all__ = [
    "METHODS",
    "Asked",
    "Begun",
    "Belief",
    "CherryPick",
    "Choice",
    "Done",
    "Ernest",
    "JobSource",
    "Limits",
    "Method",
    "News",
    "Observation",
    "Opinion",
    "Ours",
    "RandomSearch",
    "Ranking",
    "Search",
    "Space",
    "Stop",
    "Trees",
    "Trial",
    "Tuned",
    "best_row",
    "evidence_detail",
    "explain_opinion",
    "fits_words",
    "rank",
    "ranking_report",
    "span",
    "tune",
    "tuning_report",
]

# Whoever only searches does not wait for what real trials need.
_OF_TRIALS = {
    "Asked": "job_tuning",
    "Begun": "session",
    "Done": "session",
    "JobSource": "job_source",
    "Limits": "session",
    "News": "job_tuning",
    "Opinion": "opinion",
    "Ranking": "ranking",
    "Trial": "trials",
    "Tuned": "session",
    "evidence_detail": "ranking_words",
    "explain_opinion": "ranking_words",
    "fits_words": "ranking_words",
    "rank": "ranking",
    "span": "opinion",
    "tune": "job_tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_TRIALS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_OF_TRIALS[name]}"), name)


def tuning_report(tuned: "Tuned") -> str:
    """A session's result as one HTML page; only this needs Plotly."""
    from trimtab.recommend.tuning.report_page import report

    return report(tuned)


def ranking_report(ranking: "Ranking", weigh: Callable[[str], None] = lambda news: None) -> str:
    """A ranking as one HTML page; only this needs Plotly. `weigh` is told what takes long."""
    from trimtab.recommend.tuning.ranking_page import report

    return report(ranking, weigh)
