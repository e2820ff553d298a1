"""`trimtab collect functions` as a user runs it: refusals, Ctrl-C, kill, and going on."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.kernel import LimitedGroup, NoGroupError, environment, find_hierarchy, processes
from trimtab.kernel.hierarchy import passing_down

Trimtab = Callable[..., Any]
COMMAND = (sys.executable, "-c", "from trimtab.cli import main; main()", "collect", "functions")
QUICK = ("--openwhisk", "0", "--sizes", "1024MB,2048MB", "--seconds", "0.2", "--least", "2")


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    try:
        LimitedGroup.create().remove()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    (tmp_path / "tmp").mkdir()
    yield {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    for pid in ours(tmp_path):
        os.kill(pid, signal.SIGKILL)


def ours(tmp_path: Path) -> list[int]:
    """Living processes of a command that was started with our temporary folder."""
    marked = ((each.pid, environment(each.pid).get("TMPDIR")) for each in processes() if not each.zombie)
    return [pid for pid, folder in marked if folder == str(tmp_path / "tmp")]


def groups() -> set[Path]:
    hierarchy = find_hierarchy()
    place = passing_down(hierarchy) if hierarchy else None
    assert place is not None
    return {path for folder in place.folders.values() for path in folder.glob("trimtab-*")}


def groups_of(pids: list[int]) -> set[Path]:
    return {path for path in groups() if path.name.split("-")[2] in {str(pid) for pid in pids}}


def wait_until(true: Callable[[], object], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def start(
    variables: dict[str, str], path: Path, tmp_path: Path, lines: int = 3
) -> "tuple[subprocess.Popen[str], list[int]]":
    """A long collection in a session of its own, once its file has so many lines; its processes."""
    started = subprocess.Popen(
        [*COMMAND, "-o", str(path), "--applications", "500", *QUICK],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= lines)
    wait_until(lambda: len(groups_of(ours(tmp_path))) > 0)
    return started, ours(tmp_path)


def counts(path: Path) -> Counter[str]:
    with open(path) as file:
        return Counter(row["application"] for row in csv.DictReader(file))


def test_after_ctrl_c_or_a_kill_nothing_is_left_and_the_next_run_goes_on(
    variables: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "f.csv"
    started, pids = start(variables, path, tmp_path)
    os.killpg(started.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(started.pid, signal.SIGINT)  # an impatient user's second Ctrl-C
    _, errors = started.communicate(timeout=30)
    assert started.returncode not in (0, -9)
    assert "Traceback" not in errors, errors
    assert ours(tmp_path) == []
    assert groups_of(pids) == set()
    assert os.listdir(tmp_path / "tmp") == []
    measured = path.read_text()
    assert set(counts(path).values()) == {2}

    with open(path, "a") as file:
        file.write("lambda,f0-0499,1024,0.5")  # as if a line had been cut off
    started, pids = start(variables, path, tmp_path, counts(path).total() + 2)
    started.kill()
    started.communicate(timeout=30)
    wait_until(lambda: ours(tmp_path) == [] and groups_of(pids) == set(), 15)
    assert os.listdir(tmp_path / "tmp") == []
    assert path.read_text().startswith(measured)
    assert len(path.read_text()) > len(measured)
    assert set(counts(path).values()) == {2}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--applications", "0", "--openwhisk", "0"), "application"),
        (("--sizes", "128MB,lots"), '"lots"'),
        (("--sizes", ""), '""'),
        (("--sizes", "128MB,128MB"), "given twice"),
        (("--sizes", "1GB,1024MB"), "given twice"),
        (("--sizes", "128"), "128MB"),
        (("--sizes", "1MB"), "too little"),
        (("--sizes", "8GB"), "pool of 4096 MB"),
        (("-o", "{tmp}"), "folder"),
        (("-o", "{tmp}/other.csv"), "other.csv"),
    ],
)
def test_bad_input_is_one_sentence(
    trimtab: Trimtab, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "other.csv").write_text("a,b\n")
    output = () if "-o" in arguments else ("-o", str(tmp_path / "new.csv"))
    called = trimtab(
        "collect", "functions", *output, *(word.replace("{tmp}", str(tmp_path)) for word in arguments)
    )
    assert called.status == 2
    assert sentence in called.error.replace("\n", " ")
    assert len(called.error.splitlines()) == 1
    assert not (tmp_path / "new.csv").exists()
    assert (tmp_path / "other.csv").read_text() == "a,b\n"


def test_where_no_group_can_be_made_it_is_one_sentence(
    trimtab: Trimtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.kernel.group.find_hierarchy", lambda: None)
    called = trimtab("collect", "functions", "-o", str(tmp_path / "f.csv"))
    assert (called.status, called.error) == (2, "trimtab: no control groups are mounted on this machine\n")
    assert not (tmp_path / "f.csv").exists()


def test_sizes_are_the_platforms_megabytes(
    trimtab: Trimtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "trimtab.cli.collect.collect_functions", lambda collection, path, show: asked.append(collection) or 0
    )
    assert trimtab("collect", "functions", "-o", "f.csv", "--sizes", "128MB,256MiB,1GB,2 GiB").status == 0
    assert asked[0].sizes == (128, 256, 1024, 2048)
