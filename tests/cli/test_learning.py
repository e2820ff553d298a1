"""Learning from outcomes as a user meets it: versions, updates, drift, and what goes wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from trimtab.core import home
from trimtab.predict import Versions, shipped_foundation
from trimtab.store import open_store

Trimtab = Callable[..., Any]

JOB = """\
application: join
environment: ec2
observations:
  - {configuration: c4.large nodes=10, time: 20m}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "join.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


@pytest.fixture
def asked(trimtab: Trimtab, job: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(trimtab("predict", "--app", str(job), "--json").out)
    return answer


@pytest.fixture
def measured(trimtab: Trimtab, asked: dict[str, Any]) -> str:
    """A decision whose outcome was recorded."""
    assert trimtab("outcome", asked["decision"], "--time", "17m").status == 0
    return str(asked["decision"])


def _in_another_process(before: str = "") -> subprocess.Popen[str]:
    """`trimtab models update`, after some preparation inside."""
    code = f"import os, signal\n{before}\nfrom trimtab.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "models", "update"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_from_an_outcome_to_a_version_and_back(trimtab: Trimtab, measured: str, job: Path) -> None:
    planned = trimtab("models", "update", "--dry-run")
    assert "to learn for scout: join\n1 new outcomes, 1 in all" in planned.out
    assert Versions().names == ("shipped",)
    called = trimtab("models", "update")
    assert called.status == 0
    assert re.search(r"scout, replayed applications \(18 .*: mean error [\d.]+%, then [\d.]+%", called.out)
    assert re.search(r"scout, your outcomes \(1 .*no worse, .*the best rule [\d.]+%", called.out)
    assert "v1 is current now; trimtab models rollback returns to shipped" in called.out
    listed = trimtab("models", "ls").out
    assert re.search(r"v1 \(current\).*shipped, 1 outcomes", listed)
    assert "CPU share" in listed
    assert "nothing new to learn" in trimtab("models", "update").out
    assert trimtab("predict", "--app", str(job)).error == ""
    assert "shipped answers now, v1 stays on disk" in trimtab("models", "rollback").out
    assert re.search(r"shipped \(current\)", trimtab("models", "ls").out)
    assert "v1 answers now" in trimtab("models", "rollback", "v1").out
    refused = trimtab("models", "rollback", "v8")
    assert refused.status == 2
    assert '"v8"' in refused.error


def test_before_the_shipped_weights_there_is_nothing(trimtab: Trimtab) -> None:
    called = trimtab("models", "rollback")
    assert called.status == 2
    assert "shipped" in called.error


def test_an_update_that_does_worse_is_refused_with_its_figures(
    trimtab: Trimtab, measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.predict.fewshot.update._STANDARD_ERRORS", -1000.0)
    called = trimtab("models", "update")
    assert called.status == 1
    assert "not promoted: the new weights do worse, so shipped stays current" in called.out
    assert "worse" in called.out
    assert Versions().names == ("shipped",)


@pytest.mark.parametrize("replaced", [1, 2], ids=["weights half written", "weights written, not yet current"])
def test_a_killed_update_leaves_what_was_current(
    trimtab: Trimtab, measured: str, job: Path, replaced: int
) -> None:
    kill = (
        "count, replace = [], os.replace\n"
        "def dying(*paths):\n"
        "    count.append(1)\n"
        f"    if len(count) == {replaced}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(*paths)\n"
        "os.replace = dying"
    )
    process = _in_another_process(kill)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert Versions().current.name == "shipped"
    called = trimtab("predict", "--app", str(job), "--no-keep")
    assert (called.status, called.error) == (0, "")
    assert trimtab("models", "update").status == 0
    assert Versions().current.name == Versions().names[-1] == f"v{replaced}"
    assert list(Versions().folder.glob(".v*")) == []


def test_a_full_disk_leaves_what_was_current(measured: str) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))"
    process = _in_another_process(full)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "cannot be written" in error
    assert "Traceback" not in error
    assert Versions().names == ("shipped",)


def test_of_two_updates_one_is_refused(trimtab: Trimtab, measured: str) -> None:
    waiting = "import trimtab.predict.fewshot.update as u, time\nu.replayed = lambda *_: time.sleep(60)"
    process = _in_another_process(waiting)
    try:
        # The first is at work once it has let its plan be known.
        assert process.stdout is not None
        assert "to learn for scout" in process.stdout.readline()
        for command in (("update",), ("rollback", "shipped")):
            called = trimtab("models", *command)
            assert called.status == 2
            assert "another process is changing the models" in called.error
    finally:
        process.kill()
        process.communicate()
    assert trimtab("models", "update", "--dry-run").status == 0


def _other_schema(path: Path) -> None:
    about = {"schema": "000000000000", "words": "{}", "card": "{}", "checksum": ""}
    save_file(load_file(path), path, about)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1000]), "damaged"),
        (_other_schema, "another schema"),
    ],
    ids=["damaged", "another schema"],
)
def test_weights_that_cannot_be_used_are_told_and_the_shipped_ones_answer(
    trimtab: Trimtab, job: Path, damage: Callable[[Path], None], why: str
) -> None:
    versions = Versions()
    versions.make_current(versions.add(shipped_foundation()), time.time())
    damage(home() / "models" / "v1.safetensors")
    for command in (
        ("predict", "--app", str(job)),
        ("models", "ls"),
        ("models", "drift"),
        ("models", "update"),
    ):
        called = trimtab(*command)
        assert called.status == 0
        assert called.error.startswith("trimtab: the weights that came with Trimtab answer, because")
        assert why in called.error
        assert called.error.count("\n") == 1
    assert "cannot be used" in trimtab("models", "ls").out
    refused = trimtab("predict", "--app", str(job), "--weights", str(home() / "models" / "v1.safetensors"))
    assert refused.status == 2
    assert why in refused.error
    assert trimtab("models", "rollback").status == 0
    assert trimtab("predict", "--app", str(job)).error == ""


def test_an_outcome_can_be_of_another_place_than_the_chosen_one(
    trimtab: Trimtab, asked: dict[str, Any]
) -> None:
    other = next(
        line for line in asked["predictions"] if not line["known"] and line["configuration"] != asked["best"]
    )
    place = other["configuration"]
    called = trimtab("outcome", asked["decision"], "--at", place, "--time", f"{other['time']['value']}s")
    assert f"time at {place}: estimated" in called.out
    assert "within the stated range" in called.out
    assert f"time at {place}: estimated" in trimtab("decisions", asked["decision"]).out
    for wrong, sentence in (
        (["--at", "nowhere", "--time", "1m"], "nowhere"),
        (["--at", place, "--cost", "1"], "--at"),
    ):
        refused = trimtab("outcome", asked["decision"], *wrong)
        assert refused.status == 2
        assert sentence in refused.error


def test_a_slip_is_told_when_it_is_recorded_and_not_learned(trimtab: Trimtab, asked: dict[str, Any]) -> None:
    called = trimtab("outcome", asked["decision"], "--time", "300d")
    assert "nothing is learned from it" in called.out
    planned = trimtab("models", "update", "--dry-run")
    assert "left out: join at" in planned.out
    assert "nothing new to learn" in planned.out


def test_drift_is_told_with_the_outcome_that_shows_it_and_by_models_drift(
    trimtab: Trimtab, job: Path
) -> None:
    assert "no prediction" in trimtab("models", "drift").out
    told = []
    for number in range(6):
        job.write_text(JOB.replace("join", f"job {number}"), encoding="utf-8")
        decision = json.loads(trimtab("predict", "--app", str(job), "--json").out)["decision"]
        told.append(trimtab("outcome", decision, "--time", "9h").out)
    (shown,) = [text for text in told if "accuracy: " in text]
    assert "lay within the stated 90% ranges" in shown
    called = trimtab("models", "drift")
    assert "accuracy (known): " in called.out
    assert "trimtab models update learns from these outcomes" in called.out
    with open_store() as store:
        kinds = [event.detail["name"] for event in store.events.since(0) if event.kind == "drift"]
    assert kinds.count("accuracy") == 1
