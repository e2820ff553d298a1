"""Runs on a real Slurm of three nodes on this machine: gangs, signals, kills, a controller that goes away."""

import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import COUNT
from small_slurm import SmallSlurm, program, until

from trimtab.core import (
    BadInputError,
    EngineEvent,
    Launch,
    MissingDependencyError,
    Node,
    Workload,
)
from trimtab.engines import SlurmEngine, engine
from trimtab.engines.slurm.commands import SlurmAwayError

MIB = 2**20
SLEEP = ("sleep", "100")


class There:
    """An engine on the cluster, and what it has told."""

    def __init__(self, cluster: SmallSlurm) -> None:
        self.cluster = cluster
        self.engine = SlurmEngine()
        self.seen: list[EngineEvent] = []

    def launch(self, *command: str, key: str = "key", cpus: float = 1.0, **parts: int) -> str:
        return self.begin(Launch(key, Workload("w", command=command), tuple(parts.items()), cpus, 64.0 * MIB))

    def begin(self, launch: Launch) -> str:
        return self.engine.launch(launch)

    def launch_when_it_answers(self, *command: str, key: str, **parts: int) -> str:
        made: list[str] = []

        def launched() -> bool:
            with contextlib.suppress(SlurmAwayError):
                made.append(self.launch(*command, key=key, **parts))
            return bool(made)

        until(launched, 60)
        return made[0]

    def python(self, text: str, *arguments: str, key: str = "key", **parts: int) -> str:
        return self.launch(sys.executable, "-S", "-c", text, *arguments, key=key, **parts)

    def said(self, run_id: str) -> str:
        return self.engine.log(run_id).read_text()

    def events(self, run_id: str, what: str) -> list[EngineEvent]:
        """What was told of a run once it is told that; a controller that is slow to answer is asked again."""

        def told() -> list[EngineEvent]:
            with contextlib.suppress(SlurmAwayError):
                self.seen.extend(self.engine.watch())
            return [event for event in self.seen if event.run_id == run_id]

        until(lambda: any(event.what == what for event in told()), 60)
        return told()


@pytest.fixture
def there(cluster: SmallSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    place = There(cluster)
    yield place
    for run_id in place.engine.running():
        place.engine.stop(run_id, 0.0)


def test_nodes_have_their_accelerators_from_slurm(there: There) -> None:
    assert there.engine.nodes() == [
        Node("n1", 4.0, 1024.0 * MIB, "t4", 2, "zone-a"),
        Node("n2", 4.0, 1024.0 * MIB, "v100", 2, "zone-b"),
        Node("n3", 2.0, 512.0 * MIB),
    ]
    there.cluster.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    try:
        assert [node.name for node in there.engine.nodes()] == ["n1", "n2"]
        assert engine("slurm://small").nodes() == []
    finally:
        there.cluster.ask("scontrol", "update", "nodename=n3", "state=resume")


def test_a_gang_over_two_nodes_meets_at_its_first_worker(there: There) -> None:
    script = """
import os, socket
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
names = ("WORLD_SIZE", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "NOTE")
print(rank, *(os.environ[name] for name in names), flush=True)
if rank == 0:
    server = socket.create_server(place)
    others = [server.accept()[0].recv(9) for _ in range(3)]
    print(sorted(others), flush=True)
else:
    for _ in range(100):
        try:
            socket.create_connection(place).send(b"%d" % rank)
            break
        except ConnectionError:
            __import__("time").sleep(0.1)
"""
    command = (sys.executable, "-S", "-c", script)
    parts = (("n1", 2), ("n2", 2))
    note = {"NOTE": "it's"}
    run_id = there.begin(Launch("k", Workload("w", command=command), parts, 1.0, 64.0 * MIB, 1.0, note))
    assert there.engine.running() == {run_id: "k"}
    events = there.events(run_id, "ended")
    assert [event.what for event in events] == ["started", "ended"]
    assert events[0].detail.endswith("on n[1-2]")
    assert abs(events[1].time - time.time()) < 60
    assert events[1].detail == "status 0"
    assert sorted(there.said(run_id).splitlines()) == [
        "0 4 0 0,1 it's",
        "1 4 1 0,1 it's",
        "2 4 0 0,1 it's",
        "3 4 1 0,1 it's",
        "[b'1', b'2', b'3']",
    ]
    assert there.engine.running() == {}
    assert list(there.engine.watch()) == []


def test_workers_have_the_time_they_need_when_they_are_asked_to_end(there: There) -> None:
    """One ends at once, the other saves its work first, longer than Slurm itself would wait."""
    script = """
import os, signal, sys, time
def save(*_):
    print("saves", flush=True)
    time.sleep(3)
    print("saved", flush=True)
    sys.exit(0)
if os.environ["RANK"] == "1":
    signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(0.05)
"""
    run_id = there.python(script, n1=1, n2=1)
    until(lambda: there.said(run_id).count("ready") == 2)
    there.engine.stop(run_id, 20.0)
    assert there.said(run_id).count("saves") == there.said(run_id).count("saved") == 1
    assert there.events(run_id, "ended")[-1].detail == "stopped, status 143"


def test_a_run_that_waits_is_running_and_leaves_the_queue_when_stopped(there: There) -> None:
    first = there.launch(*SLEEP, key="first", cpus=2.0, n3=1)
    second = there.launch(*SLEEP, key="second", n3=1)
    there.events(first, "started")
    assert there.engine.running() == {first: "first", second: "second"}
    there.engine.stop(second)
    assert [event.detail for event in there.events(second, "ended")] == ["stopped, status 0"]
    assert there.said(second) == ""


def test_a_job_ended_by_somebody_else_has_failed(there: There) -> None:
    run_id = there.launch(*SLEEP, n3=1)
    there.events(run_id, "started")
    there.cluster.ask("scancel", f"--name=trimtab-{run_id}")
    assert there.events(run_id, "failed")[-1].detail == "cancelled in Slurm, not by Trimtab"


def test_a_launch_killed_at_any_moment_starts_once(there: There, tmp_path: Path) -> None:
    def launch(key: str) -> Launch:
        command = ("sh", "-c", f"echo begun >> '{tmp_path}/{key}'")
        return Launch(key, Workload("w", command=command), (("n1", 1),), 1.0, 64.0 * MIB)

    keys = [f"key-{number}" for number in range(6)]
    for number, key in enumerate(keys):
        first = multiprocessing.get_context("fork").Process(target=there.begin, args=(launch(key),))
        first.start()
        time.sleep(0.01 * number)
        first.kill()
        first.join()
    before = there.engine.running()
    runs = [there.begin(launch(key)) for key in keys]
    assert set(before.items()) <= set(zip(runs, keys, strict=True))
    for run_id, key in zip(runs, keys, strict=True):
        there.events(run_id, "ended")
        assert (tmp_path / key).read_text() == "begun\n"


def test_a_job_whose_submission_was_not_noted_down_is_found_again(there: There) -> None:
    run_id = there.launch(*SLEEP, n1=1)
    (there.engine.log(run_id).parent / "submission.json").unlink()
    there.engine = SlurmEngine()
    assert there.engine.running() == {run_id: "key"}
    assert there.launch(*SLEEP, n1=1) == run_id
    assert len(there.cluster.ask("squeue", "-h", f"--name=trimtab-{run_id}", "-o", "%A").split()) == 1


def test_a_controller_that_goes_away_and_comes_back_loses_nothing(there: There, tmp_path: Path) -> None:
    script = """
import pathlib, sys, time
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)
"""
    run_id = there.python(script, f"{tmp_path}/go", n1=1)
    until(lambda: "ready" in there.said(run_id))
    there.cluster.stop("slurmctld")
    try:
        with pytest.raises(SlurmAwayError):
            list(there.engine.watch())
        with pytest.raises(SlurmAwayError):
            there.launch("true", key="late", n1=1)
        (tmp_path / "go").touch()
    finally:
        there.cluster.start("slurmctld", "-D")
    late = there.launch_when_it_answers("true", key="late", n1=1)
    assert there.events(run_id, "ended")[-1].detail == "status 0"
    assert there.events(late, "ended")[-1].detail == "status 0"


def test_workers_that_are_to_start_while_the_controller_is_away_start_later(
    there: There, tmp_path: Path
) -> None:
    waiting = tmp_path / "srun"
    waiting.write_text(
        f'#!/bin/sh\nuntil [ -e {tmp_path}/go ]; do sleep 0.05; done\nexec {program("srun")} "$@"\n'
    )
    waiting.chmod(0o755)
    work = Workload("w", command=("echo", "here at last"))
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run_id = there.begin(Launch("k", work, (("n1", 1),), 1.0, 64.0 * MIB, 0.0, path))
    there.events(run_id, "started")
    there.cluster.stop("slurmctld")
    try:
        (tmp_path / "go").touch()
        until(lambda: "srun: error" in there.said(run_id), 60)
    finally:
        there.cluster.start("slurmctld", "-D")
    assert [event.detail for event in there.events(run_id, "ended")][-1] == "status 0"
    assert there.said(run_id).count("here at last") == 1


def test_what_slurm_has_forgotten_is_told_from_the_runs_own_note_or_is_lost(there: There) -> None:
    noted, unnoted = there.launch("true", key="noted", n1=1), there.launch("true", key="unnoted", n1=1)
    folders = [there.engine.log(run_id).parent for run_id in (noted, unnoted)]
    until(lambda: all((folder / "status").exists() for folder in folders))
    (folders[1] / "status").unlink()
    there.cluster.stop("slurmctld")
    there.cluster.start("slurmctld", "-D", "-c")
    until(lambda: len(there.engine.nodes()) == 3)
    assert there.events(noted, "ended")[-1].detail == "status 0"
    assert there.events(unnoted, "lost")[-1].detail
    assert there.launch("true", key="noted", n1=1) == noted


@pytest.mark.parametrize(
    ("launch", "named"),
    [
        (Launch("k", Workload("w", command=SLEEP), (("n3", 1),), 1.0, 2.0**40), "Slurm.*not available"),
        (Launch("k", Workload("w", command=SLEEP), (("n1", 1),), 1.0, 0.0, 9.0), "Slurm"),
        (Launch("k", Workload("w", command=SLEEP), (("n1", 1),), 1.0, 0.0, 0.5), r"0\.5 accelerators"),
    ],
    ids=["memory", "accelerators", "a share"],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(there: There, launch: Launch, named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        there.engine.launch(launch)
    assert there.engine.running() == {}
    assert there.cluster.ask("squeue", "-h") == ""


def test_a_killed_job_resumes_from_its_checkpoint_and_ends_with_the_same_result(
    there: There, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    undisturbed = there.python(COUNT, str(whole), key="whole", n1=1)
    first = there.python(COUNT, str(broken), key="broken, attempt 1", n2=1)
    until((broken / "checkpoint").exists)
    os.kill(json.loads((broken / "checkpoint").read_text())["pid"], 9)
    assert there.events(first, "failed")[-1].detail == "status 137"
    second = there.python(COUNT, str(broken), key="broken, attempt 2", n2=1)
    there.events(second, "ended")
    there.events(undisturbed, "ended")
    assert there.said(second).startswith("resumed at ")
    assert (broken / "result").read_text() == (whole / "result").read_text()


def test_without_slurms_commands_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependencyError, match='"sinfo"'):
        engine("slurm://").nodes()


def test_after_the_name_comes_a_partition() -> None:
    with pytest.raises(BadInputError, match="slurm://a b"):
        engine("slurm://a b")
