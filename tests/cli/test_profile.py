"""`trimtab profile` as a user runs it: a process of its own, with signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.kernel import environment, find_hierarchy, processes, read_process
from trimtab.observe import load_profile
from trimtab.observe.listening import FOLDER_VARIABLE

TRIMTAB = (sys.executable, "-c", "from trimtab.cli import main; main()")
LOOP = (
    "import subprocess, time; subprocess.Popen(['sleep', '600']); print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {**os.environ, "TRIMTAB_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}


def trimtab(variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*TRIMTAB, *arguments], env=variables, capture_output=True, text=True, timeout=60)


def start_profile_of_a_loop(variables: dict[str, str]) -> "subprocess.Popen[str]":
    command = [*TRIMTAB, "profile", "--for", "60s", "--name", "loop", "--", sys.executable, "-c", LOOP]
    started = subprocess.Popen(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests may run in the background of a shell, which ignores SIGINT and hands that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def marked(temporary: str) -> list[int]:
    """Living processes that belong to a run whose folder is in `temporary`."""
    found = ((p.pid, environment(p.pid).get(FOLDER_VARIABLE, "")) for p in processes() if not p.zombie)
    return [pid for pid, folder in found if folder.startswith(temporary)]


def parent(pid: int) -> int | None:
    found = read_process(pid)
    return found.parent if found is not None else None


def groups_of(pid: int) -> list[Path]:
    hierarchy = find_hierarchy()
    folders = hierarchy.folders.values() if hierarchy else ()
    return [path for folder in folders for path in folder.glob(f"trimtab-*-{pid}-*")]


def test_a_profile_is_written_and_the_next_command_is_named(variables: dict[str, str]) -> None:
    done = trimtab(
        variables, "profile", "--for", "1s", "--every", "200ms", "--", "sh", "-c", "echo hello; sleep 60"
    )
    assert done.returncode == 0
    assert done.stdout.startswith("hello\n")
    assert "Profile: " in done.stdout
    (path,) = (Path(variables["TRIMTAB_HOME"]) / "profiles").glob("*.json")
    assert load_profile(path).ended == "interrupted"
    assert done.stderr == ""


def test_the_commands_own_options_and_status_pass_through(variables: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "out" / "p.json"
    done = trimtab(variables, "profile", "-o", str(path), "--", "sh", "-c", "exit $1", "--full", "5")
    assert done.returncode == 5
    found = load_profile(path)
    assert found.workload.command == ("sh", "-c", "exit $1", "--full", "5")
    assert found.status == 5


@pytest.mark.parametrize(
    ("arguments", "part", "status"),
    [
        (("--", "no-such-program"), '"no-such-program"', 127),
        ((), "trimtab profile -- python train.py", 2),
        (("--for", "soon", "--", "true"), '"soon"', 2),
        (("--for", "0s", "--", "true"), "--for", 2),
        (("--full", "--", "touch", "{tmp}/ran"), "--for", 2),
        (("--threads", "0,1", "--", "touch", "{tmp}/ran"), "0,1", 2),
        (("--threads", "1", "--fake", "--", "touch", "{tmp}/ran"), "--threads", 2),
        (("--input", "8x8", "--", "touch", "{tmp}/ran"), "8x8", 2),
        (("--model", "builder"), "builder", 2),
        (("--model", "{tmp}/config.json"), "config.json", 2),
        (("--model", "builder:build", "--input", "8by8"), "8by8", 2),
        (("--model", "builder:build", "--", "touch", "{tmp}/ran"), "builder:build", 2),
        (("-o", "/proc/nowhere/p.json", "--", "touch", "{tmp}/ran"), "/proc/nowhere", 2),
        (("-o", "/no-such-folder/p.json", "--", "touch", "{tmp}/ran"), "/no-such-folder", 2),
        (("-o", "{tmp}/none/such/p.json", "--", "touch", "{tmp}/ran"), "none/such", 2),
    ],
)
def test_a_mistake_is_one_sentence_and_runs_nothing(
    variables: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], part: str, status: int
) -> None:
    done = trimtab(variables, "profile", *(a.replace("{tmp}", str(tmp_path)) for a in arguments))
    assert done.returncode == status
    assert part in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()
    assert list(Path(variables["TRIMTAB_HOME"]).rglob("*.json")) == []
    assert not Path("/no-such-folder").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_trimtab_ends_the_command_and_keeps_what_was_seen(
    variables: dict[str, str], number: signal.Signals
) -> None:
    started = start_profile_of_a_loop(variables)
    assert len(marked(variables["TMPDIR"])) == 2
    started.send_signal(number)
    output, errors = started.communicate(timeout=30)
    assert started.returncode == 128 + number, errors
    assert "interrupted after" in output
    assert marked(variables["TMPDIR"]) == []
    assert groups_of(started.pid) == []
    assert os.listdir(variables["TMPDIR"]) == []
    (path,) = (Path(variables["TRIMTAB_HOME"]) / "profiles").glob("*.json")
    assert json.loads(path.read_text())["workload"]["name"] == "loop"


def test_what_a_killed_trimtab_leaves_is_swept_by_the_next(variables: dict[str, str]) -> None:
    started = start_profile_of_a_loop(variables)
    command = next(pid for pid in marked(variables["TMPDIR"]) if parent(pid) == started.pid)
    started.kill()
    started.wait()
    deadline = time.monotonic() + 5
    while read_process(command) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert read_process(command) is None, "the command dies with Trimtab"
    assert trimtab(variables, "profile", "--", "true").returncode == 0
    assert marked(variables["TMPDIR"]) == []
    assert groups_of(started.pid) == []
    assert os.listdir(variables["TMPDIR"]) == []


def test_a_model_is_profiled_without_a_script(variables: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    (tmp_path / "builder.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Linear(100_000, 100_000)\n"
    )
    path = tmp_path / "p.json"
    arguments = ("profile", "--model", "builder:build", "--input", "4x100000", "--optimizer", "SGD")
    done = subprocess.run(
        [*TRIMTAB, *arguments, "-o", str(path)],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    found = load_profile(path)
    assert found.workload.name == "build"
    assert found.model is not None
    assert (found.model.parameters, found.model.optimizer) == (100_000**2 + 100_000, "SGD")
    assert found.steps is not None
    assert (found.steps.batch_size, found.steps.device) == (4, "meta")


def test_a_builder_that_does_not_exist_is_named(variables: dict[str, str]) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    done = trimtab(variables, "profile", "--model", "no_such_module:build", "--input", "4x4")
    assert done.returncode == 2
    assert "no_such_module" in done.stderr
    assert len(done.stderr.splitlines()) == 1
