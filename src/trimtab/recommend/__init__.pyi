from .explain import (
    Evidence as Evidence,
    bound as bound,
    evidence as evidence,
    explain_row as explain_row,
    plain_recommendation as plain_recommendation,
    reason as reason,
)
from .ledger_entry import (
    LOOK_BACK as LOOK_BACK,
    decision as decision,
    runs_after as runs_after,
)
from .report import html_report as html_report
from .request import Assumptions as Assumptions, Request as Request, Work as Work, work as work
from .search import Recommendation as Recommendation, Row as Row, Side as Side, recommend as recommend
