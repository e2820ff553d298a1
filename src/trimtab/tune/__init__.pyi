from .command_space import SpaceSource as SpaceSource
from .job_source import JobSource as JobSource
from .opinion import Opinion as Opinion, span as span
from .pages import ranking_report as ranking_report, tuning_report as tuning_report
from .ranking import (
    Ranking as Ranking,
    evidence_detail as evidence_detail,
    explain_opinion as explain_opinion,
    fits_words as fits_words,
    rank as rank,
)
from .session import (
    Begun as Begun,
    Done as Done,
    Limits as Limits,
    News as News,
    Tuned as Tuned,
    TuneOptions as TuneOptions,
    tune_job as tune_job,
    tune_space as tune_space,
)
from .trials import Trial as Trial
