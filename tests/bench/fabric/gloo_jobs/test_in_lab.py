"""A real job on two hosts of a lab: an uplink goes silent in its middle, and it never knows."""

import sys
import time
from pathlib import Path

import pytest
from trimtab_bench.fabric.gloo_jobs import GlooJob, Ranks, loss_difference, run_job

from trimtab.fabric import Timers
from trimtab.fabric.lab.lab import Lab

pytest.importorskip("torch", reason="the job trains with PyTorch")

pytestmark = pytest.mark.timeout(400)

JOBS = Path(__file__).resolve().parents[4] / "examples" / "fabric"
LIMIT = 120.0  # s, for machines that have much else to do
STEPS, BROKEN_AT, SILENT = 100, 20, 2.0  # steps, a step, s
CALM = Timers(interval=0.05, multiplier=3)
"""Slow enough for sessions to stay up on a machine that does much else."""


def test_a_job_ends_well_and_learns_the_same_although_an_uplink_was_silent(can_build: None) -> None:
    options = ("--width", 4, "--blocks", 1, "--batch-size", 4, "--steps", STEPS)
    job = GlooJob((sys.executable, str(JOBS / "pictures_resnet.py"), *map(str, options)))
    with Lab(timers=CALM) as lab:
        lab.wait_ready(60)
        lab.start_agents()
        fault = lab.fault("blackhole", 0, "p1")

        def break_it(ranks: Ranks) -> None:
            if ranks.last_step >= BROKEN_AT and not fault.history:
                fault.start()
            if fault.began is not None and time.monotonic() - fault.began >= SILENT:
                fault.stop()

        bound = job.bound_to(lab.hosts[0].host.tenants[0].devices[0])
        through_it = run_job(bound, lab.run, limit=LIMIT, meanwhile=break_it)
        fault.stop()
    assert through_it.failure == ""
    assert fault.history
    undisturbed = run_job(job, limit=LIMIT)
    assert len(through_it.steps) == len(undisturbed.steps) == STEPS
    assert loss_difference(through_it, undisturbed) == 0.0
