"""Commands against a server: the same words, the same answers, and a store of its own there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the serve extra")

from trimtab.core import Answer, Decision, Estimate
from trimtab.serve.api import build
from trimtab.serve.listening import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store, open_store

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
    with listening(build(store, settings), settings) as server:
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
    assert "has written nothing" in run("logs", kept.id).stderr
    assert f"job {kept.id} (train) is cancelled" in run("cancel", kept.id).stdout
    assert not (tmp_path / "here" / "trimtab.sqlite").exists()


def test_a_decision_and_its_outcome_are_there(run: Run, store: Store) -> None:
    said = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:x", {"nodes": 1}, said)
    made = Decision("abc123", 1.0, "recommend", "resnet", {"nodes": 1}, said, "rule:x", rule, None, (), "why")
    store.ledger.record(made, "team")
    assert "resnet" in run("decisions").stdout
    recorded = run("outcome", "abc", "--time", "11s")
    assert recorded.returncode == 0, recorded.stderr
    assert "within the stated range" in recorded.stdout
    assert [each.measured for each in store.ledger.outcomes("abc123")] == [{"time": 11.0}]


def test_the_catalog_and_the_models_of_the_server_are_shown(run: Run) -> None:
    offers = json.loads(run("catalog", "ls", "--accelerator", "H100", "--limit", "2", "--json").stdout)
    assert [offer["accelerator"] for offer in offers] == ["H100", "H100"]
    shown = run("models", "ls")
    assert "shipped (current)" in shown.stdout, shown.stderr


def test_what_the_server_refuses_is_one_sentence(run: Run) -> None:
    for words, said in [
        (("tenants", "set", "q"), "an operator may do this"),
        (("access", "list"), "an admin may do this"),
        (("jobs", "--state", "gone"), '"gone" is not a state'),
        (("decisions", "none"), 'there is no decision "none"'),
        (("simulate",), "trimtab simulate works with this machine alone"),
        (("models", "update"), "trimtab models update works with this machine alone"),
        (("top", "--once"), "pools: this concerns all tenants"),
        (("fabric", "status"), "fabric: this concerns all tenants"),
    ]:
        refused = run(*words)
        assert (refused.returncode, refused.stdout) == (2, ""), words
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
    forged = run("jobs", token="tt_000000000000_x")
    assert forged.returncode == 2
    assert "opens nothing" in forged.stderr


def test_a_token_file_is_read_and_needs_a_server(tmp_path: Path) -> None:
    alone = subprocess.run(
        [TRIMTAB, "--token-file", str(tmp_path / "none"), "jobs"], capture_output=True, text=True, timeout=60
    )
    assert alone.returncode == 2
    assert "name it with --server" in alone.stderr
