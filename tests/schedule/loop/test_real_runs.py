"""The loop on this machine: real processes, a scheduler killed at random instants, work that goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driven_loop import in_thread, until

from trimtab.engines import LocalEngine
from trimtab.kernel import LimitedGroup, NoGroupError
from trimtab.schedule import JobFolder, Scheduler, Submission
from trimtab.schedule.loop.view import read_progress
from trimtab.store import Store

Submit = Callable[..., Submission]
MakeScheduler = Callable[..., Scheduler]

# A scheduler as `trimtab up` runs it, begun anew by a fork for every line it is sent.
LOOPS = """
import os, sys, threading
import trimtab.store.jobs, trimtab.schedule.policies.fifo
from trimtab.engines import engine
from trimtab.schedule import LoopSettings, Scheduler, policy
from trimtab.store import open_store

def loop():
    with open_store(sys.argv[1]) as store:
        settings = LoopSettings(round=0.3, look=0.02, grace=0.5)
        Scheduler(store, engine(sys.argv[2]), policy("fifo"), "fifo", settings).run(threading.Event())

for _ in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if not pid:
        loop()
    print(pid, flush=True)
    os.waitpid(pid, 0)
"""
# A machine that pretends to have room for six jobs at once.
SIX = "local://?nodes=2&cpus=3&memory=8GiB"

# Adds up the numbers below a hundred, half of the time in a state that only its checkpoint knows.
SUM = """
import json, os, pathlib, signal, time
state = pathlib.Path(os.environ["TRIMTAB_CHECKPOINT"], "state.json")
done, total = json.loads(state.read_text()) if state.exists() else (0, 0)
print("from", done, flush=True)

def save(*_):
    state.with_suffix(".new").write_text(json.dumps((done, total)))
    state.with_suffix(".new").rename(state)
    pathlib.Path(os.environ["TRIMTAB_SAVED"]).touch()

signal.signal(signal.SIGUSR1, save)
while done < 100:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    total, done = total + done, done + 1
    pathlib.Path(os.environ["TRIMTAB_PROGRESS"]).write_text(str(done))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    time.sleep(0.02)
print("total", total, flush=True)
"""


@pytest.fixture(autouse=True)
def _runs_are_gone() -> Iterator[None]:
    """Needs control groups; leaves none behind."""
    try:
        LimitedGroup.create().remove()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    yield
    engine = LocalEngine()
    for run_id in engine.running():
        engine.stop(run_id, grace=0.2)


def test_a_scheduler_killed_at_random_instants_loses_no_job_and_runs_none_twice(
    store: Store, submit: Submit, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    chance = random.Random(5)
    for number in range(20):
        line = f'sleep {chance.uniform(0.05, 0.6):.2f}; echo "$TRIMTAB_JOB-$TRIMTAB_ATTEMPT" >> {effects}'
        submit(f"job{number:02}", "resources: {memory: 64MiB}", command=f"[sh, -c, {line!r}]")
    kills = 0
    with subprocess.Popen(
        [sys.executable, "-c", LOOPS, f"sqlite:///{store.name}", SIX],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as loops:
        assert loops.stdin is not None
        assert loops.stdout is not None
        while store.jobs.active():
            loops.stdin.write("again\n")
            loops.stdin.flush()
            pid = int(loops.stdout.readline())
            # Longer and longer: on a busy machine, a loop needs more time until it has done something.
            time.sleep(chance.uniform(0.05, 0.9) * (1 + kills / 20))
            os.kill(pid, signal.SIGKILL)
            kills += 1
    assert {record.state.value for record in store.jobs.list()} == {"ended"}
    assert sorted(effects.read_text().split()) == [f"job{number:02}-1" for number in range(20)]
    assert kills > 4
    assert not LocalEngine().running()


def test_a_job_preempted_midway_goes_on_from_its_checkpoint_with_the_same_result(
    store: Store, submit: Submit, scheduler: MakeScheduler, tmp_path: Path
) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    engine = LocalEngine("?nodes=1&cpus=1&memory=8GiB")
    submit("sum", "priority: low\nwork: 100\ncheckpoint: USR1", command=f"[{sys.executable}, -S, {script}]")
    with in_thread(scheduler(engine, "priority")):
        until(lambda: _progress("sum") >= 10)
        submit("rush", "priority: urgent", command="[sleep, '0.2']")
        until(lambda: store.jobs.get("sum").state.final)
    rush, job = store.jobs.get("rush"), store.jobs.get("sum")
    assert (rush.state.value, job.state.value) == ("ended", "ended")
    assert job.run.restarts >= 1
    written = engine.log(job.run.run_id).read_text().split()
    assert int(written[1]) >= 10
    assert written[2:] == ["total", str(sum(range(100)))]
    assert job.done == 100.0
    assert job.run.rates[""] > 0


def test_a_checkpoint_command_runs_where_the_job_runs_and_finds_nothing_of_the_schedulers(
    store: Store,
    submit: Submit,
    scheduler: MakeScheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRIMTAB_STORE", "postgresql://trimtab:s3cr3t@db/trimtab")
    monkeypatch.setenv("GH_PAT", "s3cr3t")
    save = f"env > {tmp_path}/env; cat /proc/self/cgroup > {tmp_path}/group"
    engine = LocalEngine("?nodes=1&cpus=1&memory=8GiB")
    submit("a", f"priority: low\ncheckpoint: {{command: [sh, -c, {save!r}]}}", command="[sleep, '60']")
    with in_thread(scheduler(engine, "priority")):
        until(lambda: store.jobs.get("a").state.value == "running")
        run_id = store.jobs.get("a").run.run_id
        submit("rush", "priority: urgent", command="[sleep, '60']")
        until(lambda: store.jobs.get("rush").state.value == "running")
    for id in engine.running():
        engine.stop(id, 0.0)
    assert "s3cr3t" not in (tmp_path / "env").read_text()
    assert f"TRIMTAB_CHECKPOINT={JobFolder.of('a').checkpoint}\n" in (tmp_path / "env").read_text()
    assert f"/trimtab-run-{run_id}\n" in (tmp_path / "group").read_text()


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "link"])
def test_what_a_job_puts_in_place_of_its_progress_holds_up_nobody(put: Callable[[Path], None]) -> None:
    folder = JobFolder.of("a")
    folder.make()
    put(folder.progress)
    assert read_progress(folder.progress) is None


def _progress(id: str) -> float:
    try:
        return float(JobFolder.of(id).progress.read_text() or 0)
    except OSError:
        return 0.0


def test_ending_the_loop_leaves_jobs_running_and_the_next_one_goes_on(
    store: Store, submit: Submit, scheduler: MakeScheduler, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    submit("a", command=f"[sh, -c, {wait!r}]")
    engine = LocalEngine()
    with in_thread(scheduler(engine)):
        until(lambda: store.jobs.get("a").state.value == "running")
    (run_id,) = engine.running()
    assert os.path.exists(engine.log(run_id))
    gate.touch()
    with in_thread(scheduler(LocalEngine())):
        until(lambda: store.jobs.get("a").state.value == "ended")
    assert store.jobs.get("a").run.attempt == 1
