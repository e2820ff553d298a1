"""The contract that every engine keeps, whatever runs behind it. A new engine is one more harness here.

Real processes, Slurm daemons and Ray nodes; of Kubernetes a stand-in API server whose pods are processes.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_harness import EngineHarness, open_harness, until

from trimtab.core import BadInputError, Launch, NotFoundError, TrimtabError, Workload
from trimtab.engines import ENGINES

WAIT = "echo ready; while :; do sleep 0.05; done"


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name == "ray" else ()) for name in ENGINES],
)
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[EngineHarness]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp(request.param)
        with open_harness(request.param, folder, free_port, monkeypatch) as opened:
            monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-of-trimtab")
            yield opened


def test_nodes_have_a_capacity(harness: EngineHarness) -> None:
    nodes = {node.name: node for node in harness.engine.nodes()}
    for name in harness.nodes:
        assert nodes[name].cpus > 0
        assert nodes[name].memory > 0
        assert nodes[name].gpus > 0
        assert nodes[name].accelerator


def test_a_key_starts_once_also_after_a_restart_and_after_its_end(
    harness: EngineHarness, tmp_path: Path
) -> None:
    script = f"echo begun >> {tmp_path}/begun"
    run_id = harness.launch("once", script)
    assert harness.launch("once", script) == run_id
    harness.engine = harness.open()
    assert harness.launch("once", script) == run_id
    harness.events(run_id, "ended")
    assert harness.launch("once", script) == run_id
    assert (tmp_path / "begun").read_text() == "begun\n"


def test_a_run_starts_and_ends_and_each_is_reported_once(harness: EngineHarness, tmp_path: Path) -> None:
    run_id = harness.launch("ends", f"echo hello; until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    harness.events(run_id, "started")
    assert harness.engine.running()[run_id] == "ends"
    (tmp_path / "go").touch()
    started, ended = harness.events(run_id, "ended")
    assert (started.what, ended.what, ended.detail) == ("started", "ended", "status 0")
    assert started.time <= ended.time
    assert "hello\n" in harness.log(run_id)
    assert run_id not in harness.engine.running()
    assert [event for event in harness.engine.watch() if event.run_id == run_id] == []
    assert [event for event in harness.open().watch() if event.run_id == run_id] == []


def test_an_event_that_was_not_taken_is_reported_again(harness: EngineHarness) -> None:
    run_id = harness.launch("again", WAIT)
    until(lambda: "ready" in harness.log(run_id))

    def first_started() -> bool:
        """Whoever asks dies with the event in hand: the next one is not asked for."""
        return (
            next((event.what for event in harness.engine.watch() if event.run_id == run_id), "") == "started"
        )

    until(first_started)
    assert [event.what for event in harness.events(run_id, "started")] == ["started"]
    harness.engine.stop(run_id, 0.0)


def test_one_worker_that_fails_ends_the_others_and_its_status_is_the_runs(harness: EngineHarness) -> None:
    script = 'echo "$RANK of $WORLD_SIZE"; [ "$RANK" = 1 ] && exit 3; while :; do sleep 0.05; done'
    run_id = harness.launch("breaks", script, workers=(1, 1))
    assert "status 3" in harness.events(run_id, "failed")[-1].detail
    assert "1 of 2\n" in harness.log(run_id)
    assert run_id not in harness.engine.running()


def test_a_signal_reaches_every_worker_and_who_ignores_the_end_is_killed(harness: EngineHarness) -> None:
    script = "trap 'echo heard' USR1; trap '' TERM; echo ready; while :; do sleep 0.05; done"
    run_id = harness.launch("stubborn", script, workers=(1, 1))
    harness.events(run_id, "started")
    until(lambda: harness.log(run_id).count("ready") == 2)
    harness.engine.signal(run_id, "USR1")
    until(lambda: harness.log(run_id).count("heard") == 2)
    with pytest.raises(BadInputError, match="USR9"):
        harness.engine.signal(run_id, "USR9")
    assert run_id in harness.engine.running()
    harness.engine.stop(run_id, 0.5)
    assert run_id not in harness.engine.running()
    harness.engine.stop(run_id)
    assert harness.events(run_id, "ended")[-1].detail.startswith("stopped")
    with pytest.raises(NotFoundError, match=run_id):
        harness.engine.signal(run_id, "USR1")


def test_a_command_runs_beside_the_first_worker_with_the_launchs_environment(
    harness: EngineHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_STORE", "postgresql://trimtab:s3cr3t@db/trimtab")
    given = {"WORD": "one"}
    run_id = harness.launch("saves", WAIT, environment=given)
    harness.events(run_id, "started")
    until(lambda: "ready" in harness.log(run_id))
    save = ("sh", "-c", f"env > {tmp_path}/env; exit 3")
    assert harness.engine.execute(run_id, save, given, 60.0) == 3
    environment = (tmp_path / "env").read_text().splitlines()
    assert "WORD=one" in environment
    assert "s3cr3t" not in "".join(environment)
    assert run_id in harness.engine.running()
    harness.engine.stop(run_id, 0.0)
    with pytest.raises(NotFoundError, match=run_id):
        harness.engine.execute(run_id, save, given, 60.0)


def test_a_run_that_nobody_saw_end_is_lost(harness: EngineHarness) -> None:
    run_id = harness.launch("vanishes", WAIT)
    harness.events(run_id, "started")
    until(lambda: "ready" in harness.log(run_id))
    harness.lose(run_id)
    assert harness.events(run_id, "lost")[-1].detail
    assert run_id not in harness.engine.running()


def test_workers_get_the_launchs_environment_and_no_secret_of_trimtabs(harness: EngineHarness) -> None:
    given = {"WORD": "it's s3cr3t"}
    run_id = harness.launch("environment", 'echo "<$WORD> <$WANDB_API_KEY>"', environment=given)
    harness.events(run_id, "ended")
    assert "<it's s3cr3t> <>" in harness.log(run_id)
    kept = [path for path in (harness.folder / run_id).iterdir() if path != harness.engine.log(run_id)]
    assert "s3cr3t" not in "".join(path.read_text() for path in kept)


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"parts": (("nowhere", 1),)}, NotFoundError, "nowhere"),
        ({"parts": ()}, BadInputError, "refused"),
        ({"workload": Workload("refused")}, BadInputError, "command"),
        ({"key": ""}, BadInputError, "key"),
        ({"cpus": math.nan}, BadInputError, "nan"),
        ({"gpus": 99.0}, TrimtabError, ""),
        ({"gpus": 1.5}, BadInputError, "1.5"),
    ],
    ids=["node", "nobody", "command", "key", "CPUs", "accelerators", "part of an accelerator"],
)
def test_a_launch_that_cannot_be_is_refused_and_leaves_nothing(
    harness: EngineHarness, change: dict[str, object], error: type[TrimtabError], named: str
) -> None:
    usual = {
        "key": "refused",
        "workload": Workload("refused", command=("true",)),
        "parts": ((harness.nodes[0], 1),),
        "cpus": 0.1,
        "memory": 0.0,
    }
    with pytest.raises(error) as raised:
        harness.engine.launch(Launch(**{**usual, **change}))  # type: ignore[arg-type]
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "refused" not in harness.engine.running().values()


@pytest.mark.parametrize("run_id", ["", "0123456789ab", "../../etc", "x\0y"])
def test_an_unknown_run_is_not_found(harness: EngineHarness, run_id: str) -> None:
    engine = harness.engine
    for touch in (
        engine.stop,
        engine.log,
        lambda name: engine.resize(name, 1.0, None),
        lambda name: engine.signal(name, "USR1"),
    ):
        with pytest.raises(NotFoundError):
            touch(run_id)


def test_a_resize_is_done_or_refused(harness: EngineHarness) -> None:
    run_id = harness.launch("resized", WAIT)
    harness.events(run_id, "started")
    until(lambda: "ready" in harness.log(run_id))
    with pytest.raises(BadInputError):
        harness.engine.resize(run_id, -1.0, None)
    with contextlib.suppress(BadInputError):
        harness.engine.resize(run_id, 0.2, None)
    assert run_id in harness.engine.running()
    harness.engine.stop(run_id, 0.0)
