"""`trimtab pipeline` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.kernel import find_hierarchy

TRIMTAB = (sys.executable, "-c", "from trimtab.cli import main; main()")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_pipeline"
TWO = """\
# A comment that stays.
stages:
  - {name: load, command: 'echo raw > raw.txt', outputs: [raw.txt], resources: {cpu: 4, memory: 8Gi}}
  - name: train
    command: cat raw.txt
    inputs: [raw.txt]
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"TRIMTAB_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PATH": own}
    return {**os.environ, **home, "OMP_NUM_THREADS": "1"}


def without_resources(path: Path) -> Any:
    document = yaml.safe_load(path.read_text())
    for executor in document["deploymentSpec"]["executors"].values():
        executor["container"].pop("resources", None)
    return document


def groups_of(pid: int) -> list[Path]:
    hierarchy = find_hierarchy()
    folders = hierarchy.folders.values() if hierarchy else ()
    return [path for folder in folders for path in folder.glob(f"trimtab-*-{pid}-*")]


@pytest.mark.slow
def test_the_digits_example_runs_and_is_sized(variables: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the extra learn")
    pytest.importorskip("torch", reason="needs PyTorch, of the extra learn")
    sized, work = tmp_path / "sized.yaml", tmp_path / "work"
    options = ("--parameter", "epochs=3", "--work", str(work), "-o", str(sized), "--json")
    done = subprocess.run(
        [*TRIMTAB, "pipeline", str(EXAMPLE / "kubeflow.yaml"), *options],
        env=variables,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    accuracy = json.loads((work / "artifacts" / "infer" / "accuracy").read_text())["accuracy"]
    assert accuracy > 0.95
    told = json.loads(done.stdout)
    stages = {stage["stage"]: stage for stage in told["stages"]}
    assert list(stages) == ["load", "preprocess", "train", "infer"]
    assert "PyTorch model of 33,546 parameters" in stages["train"]["reason"]
    peaks = {name: stage["use"]["memory_peak"] for name, stage in stages.items()}
    assert peaks["train"] > 2 * peaks["preprocess"], "training needs most, as it should"
    assert (
        told["reserved"]["each_its_own"]["byte_seconds"]
        < told["reserved"]["as_the_file_asked"]["byte_seconds"]
    )
    assert without_resources(sized) == without_resources(EXAMPLE / "kubeflow.yaml")
    executors = yaml.safe_load(sized.read_text())["deploymentSpec"]["executors"]
    asked = executors["exec-train"]["container"]["resources"]
    assert asked["memoryLimit"] * 1e9 == stages["train"]["request"]["memory"]


def test_both_files_of_the_example_say_the_same() -> None:
    own = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["stages"]
    compiled = yaml.safe_load((EXAMPLE / "kubeflow.yaml").read_text())
    containers = compiled["deploymentSpec"]["executors"]
    assert {stage["name"] for stage in own} == {name.removeprefix("exec-") for name in containers}
    for stage in own:
        container = containers[f"exec-{stage['name']}"]["container"]
        options = {word for word in container["args"] if word.startswith("--")}
        assert stage["command"].split()[:2] == container["command"]
        assert {word for word in stage["command"].split() if word.startswith("--")} == options


def test_ctrl_c_keeps_what_was_finished_and_the_next_call_goes_on(
    variables: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "stages:\n"
        "- {name: load, command: 'echo run >> load.log', outputs: [load.log]}\n"
        "- {name: train, command: 'touch started; test -e finish || sleep 600', after: load}\n"
    )
    command = [*TRIMTAB, "pipeline", str(path)]
    started = subprocess.Popen(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests may run in the background of a shell, which ignores SIGINT and hands that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert errors == (
        "trimtab: interrupted while train ran; kept: load; the same command goes on from there\n"
    )
    assert groups_of(started.pid) == []
    assert os.listdir(variables["TMPDIR"]) == []
    (tmp_path / "finish").touch()
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "load.log").read_text() == "run\n"


def test_requests_are_written_decided_and_judged(trimtab: Callable[..., Any], tmp_path: Path) -> None:
    path, page = tmp_path / "p.yaml", tmp_path / "report.html"
    path.write_text(TWO)
    called = trimtab("pipeline", str(path), "--in-place", "--html", str(page), "--accelerator", "train=t4:2")
    assert called.status == 0, called.error
    assert "4 → " in called.out
    assert "8Gi → 64Mi" in called.out
    assert "none → 64Mi" in called.out
    assert "2 × T4" in called.out
    assert "reserved, one size for all" in called.out
    assert page.read_text().startswith("<!doctype html>")
    written = path.read_text()
    assert written.startswith("# A comment that stays.\n")
    load, train = yaml.safe_load(written)["stages"]
    assert load["resources"]["memory"] == train["resources"]["memory"] == "64Mi"
    assert train["accelerator"] == "T4:2"
    (decision,) = json.loads(trimtab("decisions", "--json", "--limit", "1").out)
    assert (decision["kind"], decision["subject"]) == ("pipeline", "p/train")
    assert decision["chosen_by"] == "rule:p95-cpu-and-peak-memory"
    assert "time: estimated" in trimtab("outcome", decision["id"], "--time", "1s").out


def test_a_profile_from_elsewhere_stands_for_a_stage(trimtab: Callable[..., Any], tmp_path: Path) -> None:
    path, profile = tmp_path / "p.yaml", tmp_path / "profile.json"
    path.write_text("stages: [{name: train, command: [a-program-elsewhere]}]")
    lacking = trimtab("pipeline", str(path))
    assert lacking.status == 2
    assert 'stage "train" has no profile and is not run here: there is no program' in lacking.error
    assert trimtab("profile", "-o", str(profile), "--every", "50ms", "--", "sleep", "0.3").status == 0
    called = trimtab("pipeline", str(path), "--profile", f"train={profile}", "--json")
    assert called.status == 0, called.error
    assert json.loads(called.out)["stages"][0]["use"]["seconds"] > 0.2


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("a: [", (), "YAML"),
        ("\x00", (), "YAML"),
        ("- a\n", (), "stages"),
        ("kind: Deployment\n", (), "stages"),
        ("", (), "pipeline"),
        ("stages: []", (), "stages is []"),
        ("stages: [{name: a, command: b, after: a}]", (), "a → a"),
        (
            "stages: [{name: a, command: 'echo no data >&2; exit 4'}]",
            (),
            'stage "a" failed with exit status 4: no data',
        ),
        (TWO, ("--profile", "tran=x.json"), '"tran"'),
        (TWO, ("--profile", "train=missing.json"), "missing.json"),
        (TWO, ("--profile", "train"), "--profile"),
        (TWO, ("--accelerator", "train=T5:1"), '"T5"'),
        (TWO, ("--accelerator", "train=4"), "such as T4:1"),
        (TWO, ("--parameter", "a=b"), "parameter"),
        (TWO, ("-o", "/proc/nowhere/sized.yaml"), "cannot be written"),
        (TWO, ("--html", "/proc/nowhere/report.html"), "cannot be written"),
        (TWO, ("-o", "{path}"), "--in-place"),
        (TWO, ("-o", "x", "--in-place"), "--in-place"),
        (TWO, ("--no-run",), '"load"'),
        (TWO, ("--margin", "-1"), "--margin"),
        (TWO, ("--every", "1ms"), "--every is 1"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    trimtab: Callable[..., Any], tmp_path: Path, text: str, options: tuple[str, ...], sentence: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    called = trimtab("pipeline", str(path), *(option.replace("{path}", str(path)) for option in options))
    assert called.status == 2
    assert sentence in called.error
    assert len(called.error.splitlines()) == 1
    assert called.out == ""
    assert path.read_text() == text
    assert not (tmp_path / "raw.txt").exists(), "nothing was run"


def test_a_missing_file_is_said(trimtab: Callable[..., Any], tmp_path: Path) -> None:
    called = trimtab("pipeline", str(tmp_path / "none.yaml"))
    assert (called.status, called.error.count("\n")) == (2, 1)
    assert "there is no such file" in called.error
