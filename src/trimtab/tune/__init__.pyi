from .job_source import JobSource as JobSource
from .job_tuning import Asked as Asked, News as News, tune as tune
from .method import (
    Belief as Belief,
    Choice as Choice,
    Method as Method,
    Search as Search,
    Stop as Stop,
    best_row as best_row,
)
from .methods import METHODS as METHODS
from .methods.cherrypick import CherryPick as CherryPick
from .methods.ernest import Ernest as Ernest
from .methods.ours import Ours as Ours
from .methods.random_search import RandomSearch as RandomSearch
from .methods.trees import Trees as Trees
from .observation import Observation as Observation
from .opinion import Opinion as Opinion, span as span
from .ranking import Ranking as Ranking, rank as rank
from .ranking_page import ranking_report as ranking_report
from .ranking_words import (
    evidence_detail as evidence_detail,
    explain_opinion as explain_opinion,
    fits_words as fits_words,
)
from .report_page import tuning_report as tuning_report
from .session import Begun as Begun, Done as Done, Limits as Limits, Tuned as Tuned
from .space import Space as Space
from .trials import Trial as Trial
