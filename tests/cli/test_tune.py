"""`trimtab tune` as a user runs it: real trials, kept through interrupts, and nothing left behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_jobs import JOBS, write_measured, write_spec
from small_slurm import open_slurm

from trimtab.kernel import LimitedGroup, mounted, processes

TRIMTAB = (sys.executable, "-c", "from trimtab.cli import main; main()")
Call = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path, new_group: Callable[..., LimitedGroup]) -> list[str]:
    """A SPEC, what other jobs did, and options that name them."""
    new_group()  # skips where there can be none
    points, local = write_measured(tmp_path)
    return [
        str(write_spec(tmp_path)),
        *("--job", "tune-me", "--data", str(points), "--local", str(local), "--engine", "local://"),
    ]


def groups() -> set[str]:
    """Control groups of runs on this machine, also of other tests."""
    hierarchy = mounted()
    folders = hierarchy.folders.values() if hierarchy else ()
    return {path.name for folder in folders for path in folder.glob("trimtab-run-*")}


def groups_of(folder: Path) -> set[str]:
    """Control groups of runs whose processes work in that folder."""
    found = set[str]()
    for pid in at_work(folder):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"trimtab-run-[^/\s]+", Path(f"/proc/{pid}/cgroup").read_text()))
    return found


def at_work(folder: Path) -> list[int]:
    """Processes whose current folder that is."""
    found = []
    for each in processes():
        try:
            if Path(f"/proc/{each.pid}/cwd").readlink() == folder and each.pid != os.getpid():
                found.append(each.pid)
        except OSError:
            pass
    return found


def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_job_is_run_here_first_and_then_tried(trimtab: Call, files: list[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    options = ("--job", "tune-me", "--trials", "1", "--data", str(_only_others(tmp_path)))
    called = trimtab("tune", files[0], *options, "--html", str(page))
    assert called.status == 0, called.error
    assert "tune-me has no local run yet" in called.out
    assert "trial 1: " in called.out
    assert "best now" in called.out
    assert "rent " in called.out
    assert "Where to train tune-me" in page.read_text()
    again = trimtab("tune", files[0], *options, "--json")
    assert "no local run yet" not in again.error, "it is kept"
    assert len(json.loads(again.out)["trials"]) == 1
    assert not at_work(tmp_path)


def _only_others(folder: Path) -> Path:
    """The data set without the job, so that it has to make its own local run."""
    other = folder / "others"
    other.mkdir()
    points, local = write_measured(other, {name: job for name, job in JOBS.items() if name != "tune-me"})
    local.rename(points.with_suffix(".local.json"))
    return points


def test_json_says_all_of_it(trimtab: Call, files: list[str]) -> None:
    called = trimtab("tune", *files, "--trials", "2", "--method", "random", "--objective", "time", "--json")
    assert called.status == 0, called.error
    told = json.loads(called.out)
    assert [trial["status"] for trial in told["trials"]] == ["ok", "ok"]
    assert told["spent"]["dollars"] == pytest.approx(sum(trial["price"] for trial in told["trials"]))
    times = [told["recommended"], *told["others"]]
    assert [each["time"]["value"] for each in times] == sorted(each["time"]["value"] for each in times)
    assert {each["evidence"] for each in times} == {"trial", "rule"}
    assert "trial 2: " in called.error, "what goes on is told beside the JSON"
    shown = trimtab("decisions", told["trials"][0]["decision"]).out
    assert "trial for tune-me" in shown
    assert "rule:training-step" in shown
    assert "outcome" in shown


def test_no_trials_only_predict(trimtab: Call, files: list[str]) -> None:
    called = trimtab("tune", *files, "--trials", "0")
    assert called.status == 0
    assert "trial 1" not in called.out
    assert "rent 1 × wide, batch 32: " in called.out
    assert "by the model from its local run and other jobs" in called.out


def test_a_trial_that_costs_more_than_it_saves_is_not_made(trimtab: Call, files: list[str]) -> None:
    write_spec(Path(files[0]).parent, samples=1000)
    called = trimtab("tune", *files)
    assert called.status == 0
    assert re.search(r"saves \$[\d.]+ .* costs \$[\d.]+", called.out)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_session_that_ends_early_goes_on(
    files: list[str], tmp_path: Path, number: int, status: int
) -> None:
    state = tmp_path / "state.json"
    options = ("--method", "random", "--state", str(state), "--json", "--trials")
    command = [*TRIMTAB, "tune", *files, *options]
    seen = set[str]()

    def runs() -> bool:
        seen.update(groups_of(tmp_path))
        return bool(seen)

    running = subprocess.Popen(
        [*command, "12"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    )
    try:
        until(state.exists, "the first trial is kept")
        until(runs, "another has begun")
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == status, errors
    if number != signal.SIGKILL:
        assert "finished trials are kept" in errors
        assert not groups() & seen
    first = json.loads(state.read_text())["trials"]
    count = len(first)
    assert 1 <= count < 12
    done = subprocess.run([*command, str(count + 1)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["trials"][:count] == first
    assert len(told["trials"]) == count + 1
    assert f"trial {count}: " not in done.stderr
    assert f"trial {count + 1}: " in done.stderr
    assert not groups() & seen
    assert not at_work(tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--job", "tune-mee"], '"tune-mee"'),
        (["--method", "cherry"], '"cherry"'),
        (["--engine", "nomad://x"], '"nomad://x"'),
        (["--objective", "beauty"], '"beauty"'),
        (["--budget", "much"], "much"),
        (["--data", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_bad_options_are_one_sentence(
    trimtab: Call, files: list[str], options: list[str], sentence: str
) -> None:
    called = trimtab("tune", *files, *options)
    assert called.status == 2
    assert sentence in called.error.replace("\n", " ")
    assert "Traceback" not in called.error


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("price_per_hour: 0.01}", "price_per_hour: 0}", "shapes.small.price_per_hour is 0"),
        ("cpus: 0.1", "cpus: 4000", "4000 CPUs"),
        ("price_date: 2026-11-15", "price_date: soon", "price_date is 'soon'"),
    ],
)
def test_a_bad_spec_is_refused(trimtab: Call, files: list[str], old: str, new: str, sentence: str) -> None:
    path = Path(files[0])
    path.write_text(path.read_text().replace(old, new))
    called = trimtab("tune", files[0], "--job", "tune-me")
    assert called.status == 2
    assert sentence in called.error.replace("\n", " ")


def test_local_runs_go_with_their_data(trimtab: Call, files: list[str]) -> None:
    called = trimtab("tune", files[0], "--job", "tune-me", "--local", "local.json")
    assert called.status == 2
    assert "--local" in called.error


def test_a_job_that_dies_is_said_so(trimtab: Call, files: list[str], tmp_path: Path) -> None:
    write_spec(tmp_path, "dies")
    called = trimtab("tune", *files, "--trials", "1")
    assert called.status == 2
    assert "the disk is on fire" in called.error
    assert not at_work(tmp_path)


@pytest.mark.slow
def test_trials_run_on_slurm(trimtab: Call, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def free_port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    with open_slurm(free_port) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
        options = ("--engine", "slurm://", "--method", "random", "--trials", "2", "--json")
        called = trimtab("tune", *files, *options)
        assert called.status == 0, called.error
        assert [trial["status"] for trial in json.loads(called.out)["trials"]] == ["ok", "ok"]
        until(lambda: not cluster.ask("squeue", "-h").strip(), "no job is left")


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """Six configurations of a command that sleeps and prints the seconds of the whole workload."""
    path = tmp_path / "space.yaml"
    path.write_text(
        f"""
command: {sys.executable} -c "import time; time.sleep(0.2); print('took', 60 / {{nodes}} + 5 * {{nodes}})"
settings: {{nodes: [1, 2, 3, 4, 6, 8]}}
price: {{nodes: times}}
measure: printed
"""
    )
    return path


def test_any_space_is_searched_with_its_command(trimtab: Call, space: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    called = trimtab("tune", "--space", str(space), "--objective", "time", "--json", "--html", str(page))
    assert called.status == 0, called.error
    found = json.loads(called.out)
    assert found["space"] == "space"
    assert found["recommended"]["settings"] == {"nodes": 3}
    assert found["recommended"]["time"]["value"] == pytest.approx(35.0)
    assert found["recommended"]["evidence"] == "trial"
    assert len({trial["setup"] for trial in found["trials"]}) == len(found["trials"]) >= 3
    assert "trial 1: nodes=" in called.error
    assert "Where to run space" in page.read_text()
    shown = trimtab("decisions", found["decision"]).out
    assert "tune for space" in shown
    again = trimtab("tune", "--space", str(space), "--objective", "time")
    assert again.status == 0, again.error
    assert "rent nodes=3" in again.out
    assert f"{len(found['trials'])} earlier trials" in again.out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_search_of_a_space_goes_on_after_it_was_ended(
    space: Path, tmp_path: Path, number: int, status: int
) -> None:
    state = tmp_path / "state.json"
    command = [*TRIMTAB, "tune", "--space", str(space), "--state", str(state), "--json", "--trials"]
    running = subprocess.Popen(
        [*command, "6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until(state.exists, "the first trial is kept")
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == status, errors
    until(lambda: not at_work(tmp_path), "no process is left")
    first = json.loads(state.read_text())["trials"]
    done = subprocess.run([*command, "6"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"][: len(first)] == first


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "--space"),
        (["SPEC"], "--job"),
        (["SPEC", "--job", "tune-me", "--command", "x"], "--command"),
        (["--space", "SPACE", "--job", "x"], "--job"),
        (["--space", "SPACE", "--engine", "local://"], "--engine"),
        (["--space", "SPACE", "SPEC"], "--space"),
        (["--space", "nowhere.csv", "--command", "run {x}"], "nowhere.csv"),
        (["--space", "SPACE", "--command", "run {nodes}"], "--command"),
        (["--space", "SPACE", "--deadline", "soon"], "soon"),
        (["--space", "SPACE", "--data", "nowhere.csv"], "nowhere.csv"),
        (["--space", "SPACE", "--trials", "0"], "--trials"),
    ],
)
def test_bad_uses_of_a_space_are_one_sentence(
    trimtab: Call, space: Path, tmp_path: Path, options: list[str], word: str
) -> None:
    named = {"SPEC": str(write_spec(tmp_path)), "SPACE": str(space)}
    called = trimtab("tune", *(named.get(option, option) for option in options))
    assert called.status == 2
    assert word in called.error
    assert "Traceback" not in called.error
