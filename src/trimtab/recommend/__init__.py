"""Which configuration should I rent? Ranked configurations with ranges and reasons, and their decision."""

from trimtab.recommend.earlier import LOOK_BACK, earlier_runs, runs_after
from trimtab.recommend.explain import Evidence, bound, evidence, explain_row, reason
from trimtab.recommend.ledger_entry import decision
from trimtab.recommend.objective import OBJECTIVES
from trimtab.recommend.plain import plain_recommendation
from trimtab.recommend.request import Assumptions, Request, Work, work
from trimtab.recommend.search import Recommendation, Row, Side, recommend

__all__ = [
    "LOOK_BACK",
    "OBJECTIVES",
    "Assumptions",
    "Evidence",
    "Recommendation",
    "Request",
    "Row",
    "Side",
    "Work",
    "bound",
    "decision",
    "earlier_runs",
    "evidence",
    "explain_row",
    "html_report",
    "plain_recommendation",
    "reason",
    "recommend",
    "runs_after",
    "work",
]


def html_report(result: Recommendation, decision_id: str) -> str:
    """The recommendation as one HTML page; only this needs Plotly."""
    from trimtab.recommend.report import report

    return report(result, decision_id)
