"""`trimtab submit`, `jobs`, `queue`, `logs`, `cancel` and `up` as a user runs them, on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trimtab.engines import LocalEngine
from trimtab.kernel import LimitedGroup, NoGroupError

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
Trimtab = Callable[..., Any]
JOB = """
name: hello
command: sh -c 'echo from $PWD as $GREETING with $MY_TOKEN; echo 3 > $TRIMTAB_PROGRESS'
environment: {GREETING: hi}
resources: {memory: 64MiB}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start `trimtab up`; its runs are gone at the end."""
    try:
        LimitedGroup.create().remove()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    with ExitStack() as stack:

        def start(*options: str, **variables: str) -> "subprocess.Popen[str]":
            child = subprocess.Popen(
                [TRIMTAB, "up", "--round", "0.3", "--no-api", *options],
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | variables,
            )
            stack.callback(child.communicate)
            stack.callback(child.kill)
            assert child.stderr is not None
            while "scheduling" not in (said := child.stderr.readline()):
                assert said, "it has ended"
            return child

        yield start
    engine = LocalEngine()
    for run_id in engine.running():
        engine.stop(run_id, grace=0.2)


def submitted(trimtab: Trimtab, *arguments: str) -> list[str]:
    called = trimtab("submit", *arguments, "--json")
    assert called.status == 0, called.error
    return [job["id"] for job in json.loads(called.out)]


def until(trimtab: Trimtab, id: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        (job,) = [job for job in json.loads(trimtab("jobs", "--json").out) if job["id"] == id]
        if job["state"] == state:
            return dict(job)
        assert time.monotonic() < deadline, job
        time.sleep(0.1)


def test_a_job_is_submitted_run_shown_and_its_output_read(
    trimtab: Trimtab,
    up: Callable[..., "subprocess.Popen[str]"],
    job_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    told = trimtab("submit", str(job_file), "--dry-run")
    assert told.out == "hello could be submitted\n"
    assert "trimtab submit FILE" in trimtab("jobs").out
    (id,) = submitted(trimtab, str(job_file), "--set", "tenant=vision", "--set", "pass=[MY_TOKEN]")
    waiting = trimtab("queue", id[:5])
    assert f"job {id} (hello) waits" in waiting.out
    assert "trimtab up" in waiting.error
    assert f"job {id} (hello)" in trimtab("logs", id, "--engine", "local://").error
    child = up("--pass", "MY_TOKEN")
    ended = until(trimtab, id, "ended")
    assert (ended["tenant"], ended["done"]) == ("vision", 3.0)
    written = f"from {job_file.parent} as hi with s3cr3t\n"
    assert trimtab("logs", id).out == trimtab("logs", id, "-f").out == written
    kept = list(Path(os.environ["TRIMTAB_HOME"]).glob("trimtab.sqlite*"))
    assert kept
    assert not any(b"s3cr3t" in path.read_bytes() for path in kept)
    assert id in trimtab("jobs", "--tenant", "vision", "--state", "ended").out
    assert id not in trimtab("jobs", "--state", "failed").out
    assert "ended: status 0" in trimtab("queue", id).out
    (decision,) = json.loads(trimtab("decisions", "--json").out)
    assert (decision["kind"], decision["subject"]) == ("schedule", f"hello ({id})")
    refused = trimtab("submit", str(job_file), "--set", "resources.cpus=4096")
    assert refused.status == 2
    assert "4096 CPUs" in refused.error
    second = trimtab("up", "--no-api")
    assert second.status == 2
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert child.returncode == 0
    assert "Traceback" not in said


def test_ctrl_c_leaves_jobs_running_and_a_cancelled_one_stops_after_the_restart(
    trimtab: Trimtab, up: Callable[..., "subprocess.Popen[str]"], job_file: Path
) -> None:
    (id,) = submitted(trimtab, str(job_file), "--set", "command=sleep 60")
    first = up("--policy", "las")
    until(trimtab, id, "running")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)
    assert list(LocalEngine().running().values()) == [f"{id}-1"]
    assert f"job {id} (hello) runs; " in trimtab("cancel", id).out
    up()
    until(trimtab, id, "cancelled")
    assert LocalEngine().running() == {}
    over = trimtab("cancel", id)
    assert over.status == 2
    assert f"job {id} (hello)" in over.error


# Loaded by every Python that starts: a policy in which there is a mistake, as long as a file is there.
_MISTAKEN = """
import pathlib
from trimtab.schedule.policies.fifo import Fifo
right, mistake = Fifo.allocate, pathlib.Path(__file__).with_name("mistake")
def allocate(self, *round):
    return right(self, *round) if not mistake.exists() else {}["nothing"]
Fifo.allocate = allocate
"""


def test_a_policy_that_fails_does_not_end_it(
    trimtab: Trimtab, up: Callable[..., "subprocess.Popen[str]"], job_file: Path, tmp_path: Path
) -> None:
    mistake = tmp_path / "mistake"
    (tmp_path / "sitecustomize.py").write_text(_MISTAKEN)
    (first,) = submitted(trimtab, str(job_file), "--set", "command=sleep 60")
    child = up("--policy", "fifo", PYTHONPATH=str(tmp_path))
    assert child.stderr is not None
    until(trimtab, first, "running")
    mistake.touch()
    (second,) = submitted(trimtab, str(job_file))
    while "policy fifo" not in (said := child.stderr.readline()):
        assert said, "it has ended"
    assert "KeyError: 'nothing' (line " in said
    until(trimtab, first, "running")
    until(trimtab, second, "waiting")
    mistake.unlink()
    until(trimtab, second, "ended")
    until(trimtab, first, "running")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert child.returncode == 0
    assert "again" in said
    assert "Traceback" not in said


def test_jobs_lists_all_or_shows_one(trimtab: Trimtab, job_file: Path) -> None:
    for _ in range(2):
        assert trimtab("submit", str(job_file)).status == 0
    first, second = json.loads(trimtab("jobs", "ls", "--json").out)
    assert {first["id"], second["id"]} == {job["id"] for job in json.loads(trimtab("jobs", "--json").out)}
    assert [job["id"] for job in json.loads(trimtab("jobs", first["id"], "--json").out)] == [first["id"]]
    missing = trimtab("jobs", "nope")
    assert missing.status == 2
    assert "nope" in missing.error


def test_a_waiting_job_is_cancelled_at_once_and_says_so(trimtab: Trimtab, job_file: Path) -> None:
    first, second = submitted(trimtab, str(job_file)), submitted(trimtab, str(job_file))
    assert f"job {first[0]} (hello) is cancelled" in trimtab("cancel", *first, *second).out
    assert trimtab("queue").out == "no job waits\n"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("submit", "none.yaml"), "none.yaml"),
        (("submit", "FILE", "--set", "gpus"), '"gpus"'),
        (
            ("submit", "FILE", "--set", "resources.gpu=1"),
            '"gpu" in resources (did you mean gpus?)',
        ),
        (("submit", "FILE", "--set", "folder=/no-such-folder"), "/no-such-folder"),
        (("submit", "FILE", "--engine", "lokal://"), '"lokal://"'),
        (
            (
                "submit",
                "FILE",
                "--engine",
                "local://?nodes=2&gpus=4&cpus=8&accelerator=t4",
                "--set",
                "resources.gpus=64",
            ),
            "8 t4",
        ),
        (("jobs", "--state", "runing"), '"runing"'),
        (("cancel", "abc"), '"abc"'),
        (("queue", "abc"), '"abc"'),
        (("logs", "abc"), '"abc"'),
        (("up", "--policy", "fi"), '"fi"'),
        (("up", "--engine", "nowhere"), '"nowhere"'),
        (("up", "--price", "a100"), '"a100"'),
        (("up", "--agents-metrics", "127.0.0.1:0"), "--agents-metrics: agents_metrics"),
        (("tenants", "set", "a b"), '"a b"'),
        (("tenants", "remove", "ghost"), '"ghost"'),
    ],
)
def test_what_is_wrong_is_one_sentence(
    trimtab: Trimtab, job_file: Path, arguments: tuple[str, ...], wrong: str
) -> None:
    called = trimtab(*(str(job_file) if each == "FILE" else each for each in arguments))
    assert called.status == 2
    assert wrong in called.error
    assert called.error.startswith("trimtab: ")
    assert len(called.error.splitlines()) == 1


def test_nothing_is_submitted_where_one_job_of_a_file_is_wrong(trimtab: Trimtab, job_file: Path) -> None:
    job_file.write_text(f"{JOB}---\nname: second\n")
    assert "job 2: command" in trimtab("submit", str(job_file)).error
    assert json.loads(trimtab("jobs", "--json").out) == []
