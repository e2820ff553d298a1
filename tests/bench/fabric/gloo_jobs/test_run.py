"""Jobs from start to end: followed, killed, started again; whatever happens, no process stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest
from trimtab_bench.fabric.gloo_jobs import (
    GlooJob,
    kill_at,
    loss_difference,
    on_loopback,
    run_job,
    run_restarting,
)

from trimtab.core import BadInputError, TrimtabError
from trimtab.fabric import WorkerDevice
from trimtab.kernel import read_process

LIMIT = 60.0

Counting = Callable[..., GlooJob]


def alive(pid: int) -> bool:
    found = read_process(pid)
    return found is not None and not found.zombie


def noted(folder: Path) -> list[int]:
    """The processes of both ranks and their children, once all are there."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        pids = [int(pid) for file in folder.glob("rank*") for pid in file.read_text().split()]
        if len(pids) == 4:
            return pids
        time.sleep(0.01)
    pytest.fail("the ranks did not start")


def gone(pids: Sequence[int]) -> bool:
    until = time.monotonic() + LIMIT
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(alive, pids))


def test_a_job_is_followed_to_its_end(counting: Counting) -> None:
    run = run_job(counting("--steps", 6, keep=True), limit=LIMIT)
    assert run.failure == ""
    assert [step.number for step in run.steps] == [1, 2, 3, 4, 5, 6]
    assert run.marks.saved == {2: 0.001, 4: 0.001, 6: 0.001}
    assert run.marks.ready is not None
    assert run.started_at < run.marks.ready < run.steps[0].time <= run.steps[-1].time <= run.ended
    assert run.initialisation == pytest.approx(run.marks.ready - run.started_at)
    assert len(run.step_seconds) == 5


def test_a_job_that_says_only_its_steps_still_shows_when_the_first_began(counting: Counting) -> None:
    run = run_job(counting("--pause", 0.05, "--silent"), limit=LIMIT)
    assert run.marks.ready is None
    assert run.initialisation is not None
    assert 0.0 < run.initialisation < run.steps[0].time - run.started_at


def test_every_rank_is_told_who_it_is_and_where_the_first_one_waits(counting: Counting) -> None:
    asked = dict[int, dict[str, str]]()

    def start(rank: int, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        asked[rank] = options["env"]
        return on_loopback(rank, words, **options)

    run_job(counting(), start, limit=LIMIT)
    assert {rank: env["RANK"] for rank, env in asked.items()} == {0: "0", 1: "1"}
    assert {env["GLOO_SOCKET_IFNAME"] for env in asked.values()} == {"lo"}
    assert len({env["MASTER_PORT"] for env in asked.values()}) == 1


def test_ranks_can_be_bound_to_a_worker_device(counting: Counting) -> None:
    device = WorkerDevice("w0", IPv4Interface("10.100.0.1/24"), "02:00:00:00:00:01")
    told = counting().bound_to(device).variables(rank=1, port=29400)
    assert (told["MASTER_ADDR"], told["GLOO_SOCKET_IFNAME"]) == ("10.100.0.1", "w0")


def test_a_killed_job_goes_on_from_its_checkpoint(counting: Counting) -> None:
    undisturbed = run_job(counting("--steps", 40), limit=LIMIT)
    done = run_restarting(
        counting("--steps", 40, keep=True), limit=LIMIT, meanwhile=kill_at(5, rank=0), most=3
    )
    assert done.failure == ""
    first, second = done.runs
    assert "rank 0" in first.failure
    assert "SIGKILL" in first.failure
    assert first.fault is not None
    assert second.marks.loaded == {second.steps[0].number - 1: 0.002}
    assert second.steps[0].number - 1 in first.marks.saved
    assert [step.number for step in done.steps] == list(range(1, 41))
    assert done.lost_steps == first.steps[-1].number - (second.steps[0].number - 1)
    assert loss_difference(undisturbed, done) == 0.0


def test_a_job_that_always_fails_is_given_up_with_its_last_words(counting: Counting) -> None:
    done = run_restarting(counting("--fail-at", 3, keep=True), limit=LIMIT, most=2)
    assert len(done.runs) == 2
    assert "step 3 went wrong" in done.failure, "the last line of its standard error"


def test_a_job_that_hangs_is_ended_in_time_with_all_its_processes(counting: Counting, tmp_path: Path) -> None:
    seen = list[int]()
    run = run_job(
        counting("--hang", "--pids", tmp_path),
        limit=1.0,
        meanwhile=lambda ranks: seen.extend(() if seen else noted(tmp_path)),
    )
    assert "1 s" in run.failure
    assert gone(seen)


def test_what_is_raised_meanwhile_leaves_no_process_behind(counting: Counting, tmp_path: Path) -> None:
    seen = list[int]()

    def broken(_: object) -> None:
        seen.extend(noted(tmp_path))
        raise RuntimeError("a fault that could not be injected")

    with pytest.raises(RuntimeError, match="could not be injected"):
        run_job(counting("--hang", "--pids", tmp_path), limit=LIMIT, meanwhile=broken)
    assert gone(seen)


def test_ranks_do_not_outlive_who_started_them(counting: Counting, tmp_path: Path) -> None:
    job = counting("--hang", "--pids", tmp_path)
    code = "from trimtab_bench.fabric.gloo_jobs import GlooJob, run_job; "
    code += f"run_job(GlooJob({job.words!r}), limit=300)"
    runner = subprocess.Popen([sys.executable, "-c", code])
    try:
        pids = noted(tmp_path)
        runner.kill()
        ranks = [int((tmp_path / f"rank{rank}").read_text().split()[0]) for rank in (0, 1)]
        assert gone(ranks)
    finally:
        runner.kill()
        runner.wait()
    for pid in pids:  # what a rank itself started is its own affair once nobody is there
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_rank_that_cannot_be_started_takes_the_others_with_it(counting: Counting, tmp_path: Path) -> None:
    started = list["subprocess.Popen[bytes]"]()

    def start(rank: int, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        if rank == 1:
            return on_loopback(rank, ["/no/such/program"], **options)
        started.append(on_loopback(rank, words, **options))
        return started[0]

    with pytest.raises(TrimtabError, match=r"rank 1.*No such file"):
        run_job(counting("--hang"), start, limit=LIMIT)
    assert started[0].poll() == -signal.SIGKILL


def test_what_makes_no_sense_is_refused(counting: Counting) -> None:
    with pytest.raises(BadInputError, match="checkpoint"):
        run_restarting(counting(), limit=LIMIT)
    with pytest.raises(BadInputError, match="0 ranks"):
        GlooJob(("true",), ranks=0)
    with pytest.raises(BadInputError, match="command"):
        GlooJob(())
    short = run_job(counting("--steps", 1), limit=LIMIT)
    with pytest.raises(BadInputError):
        loss_difference(short, run_job(GlooJob(("true",)), limit=LIMIT))
