from .earlier import LOOK_BACK as LOOK_BACK, earlier_runs as earlier_runs, runs_after as runs_after
from .explain import (
    Evidence as Evidence,
    bound as bound,
    evidence as evidence,
    explain_row as explain_row,
    reason as reason,
)
from .ledger_entry import decision as decision
from .plain import plain_recommendation as plain_recommendation
from .report import html_report as html_report
from .request import Assumptions as Assumptions, Request as Request, Work as Work, work as work
from .search import Recommendation as Recommendation, Row as Row, Side as Side, recommend as recommend
