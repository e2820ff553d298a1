"""What is thought of a configuration at some moment of a tuning session."""

from dataclasses import dataclass

from trimtab.core import Estimate
from trimtab.recommend.tuning.job_space import Setup


@dataclass(frozen=True, slots=True)
class Opinion:
    """Seconds and dollars of the whole job, and what they rest on: rule, model or trial."""

    row: int
    setup: Setup
    time: Estimate
    cost: Estimate
    evidence: str
