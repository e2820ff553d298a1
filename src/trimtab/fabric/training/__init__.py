"""Real training jobs whose ranks run anywhere: followed, killed, started again, and what that costs."""

from trimtab.fabric.training.costs import JobCosts, Measured, measure_costs
from trimtab.fabric.training.job import Job
from trimtab.fabric.training.marks import Collective
from trimtab.fabric.training.ranks import Ranks, Start, on_loopback, started
from trimtab.fabric.training.run import (
    Meanwhile,
    Restarted,
    Run,
    kill_at,
    loss_difference,
    run_job,
    run_restarting,
)

__all__ = [
    "Collective",
    "Job",
    "JobCosts",
    "Meanwhile",
    "Measured",
    "Ranks",
    "Restarted",
    "Run",
    "Start",
    "kill_at",
    "loss_difference",
    "measure_costs",
    "on_loopback",
    "run_job",
    "run_restarting",
    "started",
]
