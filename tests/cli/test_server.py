"""Commands against a server: the same words, the same answers, and a store of its own there."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from measured_jobs import write_measured, write_spec

pytest.importorskip("fastapi", reason="needs the serve extra")

from trimtab.core import Answer, Decision, Estimate
from trimtab.kernel import LimitedGroup
from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import EventFilter, Role, Store, open_store

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/there.sqlite") as made:
        yield made


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Iterator[Run]:
    """A command that is asked of the server, with the token of a tenant's user."""
    settings = Settings(listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
    _, text = store.tokens.make("cli", "team", Role.USER)
    with listening(HttpApplication(store, settings), settings) as server:
        url = f"http://127.0.0.1:{server.port}"

        def command(*words: str, token: str = text) -> "subprocess.CompletedProcess[str]":
            here = os.environ | {
                "TRIMTAB_HOME": str(tmp_path / "here"),
                "TRIMTAB_TOKEN": token,
                "COLUMNS": "200",
            }
            return subprocess.run(
                [TRIMTAB, "--server", url, *words], env=here, capture_output=True, text=True, timeout=60
            )

        yield command


def test_a_job_is_submitted_looked_at_and_cancelled_there(run: Run, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: train\ncommand: python train.py\nresources: {memory: 1GiB}\n")
    submitted = run("submit", str(file))
    assert submitted.returncode == 0, submitted.stderr
    kept = store.jobs.list()[0]
    assert (kept.tenant, kept.name, kept.spec["folder"]) == ("team", "train", str(tmp_path))
    assert f"job {kept.id} (train) waits" in submitted.stdout
    assert [each["id"] for each in json.loads(run("jobs", "--json").stdout)] == [kept.id]
    assert "waits" in run("queue", kept.id).stdout
    assert f"job {kept.id} (train)" in run("logs", kept.id).stderr
    assert f"job {kept.id} (train) is cancelled" in run("cancel", kept.id).stdout
    assert not (tmp_path / "here" / "trimtab.sqlite").exists()


def test_a_decision_and_its_outcome_are_there(run: Run, store: Store) -> None:
    said = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:x", {"memory": "1GB"}, said)
    made = Decision("abc123", 1.0, "predict", "resnet", rule.action, said, "rule:x", rule, None, (), "why")
    store.ledger.record(made, "team")
    assert "resnet" in run("decisions").stdout
    recorded = run("outcome", "abc", "--time", "11s")
    assert recorded.returncode == 0, recorded.stderr
    assert "too low, within" in recorded.stdout
    assert [each.measured for each in store.ledger.outcomes("abc123")] == [{"time": 11.0}]
    deadline = time.monotonic() + 60
    while not (noted := store.events.page(9, EventFilter("outcome")).items):
        assert time.monotonic() < deadline, "the server notes it for its models"
        time.sleep(0.05)
    assert [(event.tenant, event.subject) for event in noted] == [("team", "resnet")]


CHAIN = {
    "name": "chain",
    "nodes": [
        {"name": "x", "kind": "input"},
        {"name": "a", "block": "net.0", "kind": "matmul", "flop": 8e6, "parameters": 4e6},
        {"name": "b", "block": "net.1", "kind": "matmul", "flop": 8e6, "parameters": 4e6},
        {"name": "y", "kind": "output"},
    ],
    "edges": [
        {"from": "x", "to": "a", "bytes": 8192},
        {"from": "a", "to": "b", "bytes": 8192},
        {"from": "b", "to": "y", "bytes": 8192},
    ],
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with an application, a graph and a pipeline."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "join.yaml").write_text(
        "application: join\nenvironment: ec2\nobservations: [{configuration: c4.large nodes=10, time: 20m}]\n"
    )
    (folder / "graph.json").write_text(json.dumps(CHAIN))
    (folder / "pipeline.yaml").write_text("stages: [{name: load, command: sleep 0.2}]\n")
    return folder


def _words(files: Path) -> dict[str, tuple[str, ...]]:
    """Commands that compute where they run, by the kind of decision that they make."""
    return {
        "predict": ("predict", "--app", str(files / "join.yaml")),
        "partition": ("partition", str(files / "graph.json"), "--devices", "t4:2"),
        "pipeline": ("pipeline", str(files / "pipeline.yaml"), "--every", "50ms"),
        "fabric": ("fabric", "advise", "64"),
    }


def test_what_is_computed_here_is_kept_there(run: Run, store: Store, files: Path, tmp_path: Path) -> None:
    for kind, words in _words(files).items():
        done = run(*words, "--json")
        assert done.returncode == 0, (kind, done.stderr)
        told = json.loads(done.stdout)
        id = told["stages"][0]["decision"] if kind == "pipeline" else told["decision"]
        (kept,) = store.ledger.list(kind=kind, tenants=("team",))
        assert kept.id == id
    assert [each.workload.name for each in store.profiles.page().items] == ["pipeline/load"]
    assert not (tmp_path / "here" / "trimtab.sqlite").exists()


def test_a_job_is_tuned_here_and_its_trials_are_decisions_there(
    run: Run, store: Store, tmp_path: Path, new_group: Callable[..., LimitedGroup]
) -> None:
    new_group()  # skips where there can be none
    points, local = write_measured(tmp_path)
    known = ("--data", str(points), "--local", str(local), "--engine", "local://")
    options = ("--job", "tune-me", *known, "--method", "random", "--trials", "1", "--json")
    done = run("tune", str(write_spec(tmp_path)), *options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (trial,) = store.ledger.list(kind="trial", tenants=("team",))
    assert told["trials"][0]["decision"] == trial.id
    assert len(store.ledger.outcomes(trial.id)) == 1
    assert [each.id for each in store.ledger.list(kind="tune", tenants=("team",))] == [told["decision"]]


def test_a_result_is_printed_although_the_server_is_gone(files: Path, tmp_path: Path) -> None:
    """What may take long asks first whether it is there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        here = os.environ | {"TRIMTAB_HOME": str(tmp_path / "here"), "TRIMTAB_SERVER": url}
        begun = {
            kind: subprocess.Popen([TRIMTAB, *words, "--json"], env=here, stdout=PIPE, stderr=PIPE, text=True)
            for kind, words in _words(files).items()
            if kind in ("predict", "partition")
        }
        said = {kind: process.communicate(timeout=60) for kind, process in begun.items()}
    assert {process.returncode for process in begun.values()} == {2}
    away = f"no server answers at {url}"
    assert away in said["predict"][1]
    assert json.loads(said["predict"][0])["decision"] is None
    assert said["partition"][0] == ""
    assert said["partition"][1].startswith(f"trimtab: {away}")


def test_the_catalog_and_the_models_of_the_server_are_shown(run: Run) -> None:
    offers = json.loads(run("catalog", "ls", "--accelerator", "H100", "--limit", "2", "--json").stdout)
    assert [offer["accelerator"] for offer in offers] == ["H100", "H100"]
    shown = run("models", "ls")
    assert "shipped (current)" in shown.stdout, shown.stderr


def test_what_the_server_refuses_is_one_sentence(run: Run) -> None:
    for words, said in [
        (("tenants", "set", "q"), "operator"),
        (("access", "ls"), "admin"),
        (("jobs", "--state", "gone"), '"gone"'),
        (("decisions", "none"), '"none"'),
        (("up",), "trimtab up"),
        (("models", "update"), "trimtab models update"),
        (("fabric", "up", "host.yaml"), "trimtab fabric up"),
        (("top", "--once"), "pools"),
        (("fabric", "status"), "fabric"),
    ]:
        refused = run(*words)
        assert (refused.returncode, refused.stdout) == (2, ""), words
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
    forged = run("jobs", token="tt_000000000000_x")
    assert forged.returncode == 2
    assert "token" in forged.stderr


def test_a_token_file_is_read_and_needs_a_server(tmp_path: Path) -> None:
    alone = subprocess.run(
        [TRIMTAB, "--token-file", str(tmp_path / "none"), "jobs"], capture_output=True, text=True, timeout=60
    )
    assert alone.returncode == 2
    assert "name it with --server" in alone.stderr
