"""`trimtab simulate` as a user runs it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
Trimtab = Callable[..., Any]

HEADER = "job,submit_s,tenant,gpus,duration_s,deadline_s,checkpoint_s\n"
CLUSTER = """
groups:
  - {name: own, accelerator: t4, nodes: 2, gpus: 4, price: $4/h}
  - {name: spot, accelerator: a100, nodes: 1, gpus: 4, price: $2/h, market: spot, reclaims: 2/h}
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = (f"j{n},{n * 60},{'ab'[n % 2]},{1 + n % 4},{600 + 40 * n},36000,5\n" for n in range(30))
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(rows))
    return str(path)


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def test_policies_are_compared_in_one_table(trimtab: Trimtab, trace: str, cluster: str) -> None:
    called = trimtab(
        "simulate", trace, "--cluster", cluster, "--policy", "fifo", "--policy", "las", "--tenants"
    )
    assert called.status == 0, called.error
    lines = called.out.splitlines()
    assert lines[0].split() == [
        *("policy", "mean", "h", "p99", "h", "makespan", "deadlines", "Jain", "restarts", "used", "cost")
    ]
    assert [line.split()[0] for line in lines[1:3]] == ["fifo", "las"]
    assert "100.0%" in lines[1]
    assert sum(line.startswith(("fifo", "las")) for line in lines) == 2 + 2 * 2  # two tenants each


def test_the_same_seed_gives_the_same_answer_with_faults_too(
    trimtab: Trimtab, trace: str, cluster: str
) -> None:
    def figures(seed: str) -> Any:
        called = trimtab(
            *("simulate", trace, "--cluster", cluster, "--policy", "srtf", "--round", "60", "--json"),
            *("--faults", "node-loss=1/2h,repair=10m,slow=30%,job-failure=0.5/h", "--seed", seed),
        )
        assert called.status == 0, called.error
        return json.loads(called.out)["policies"]["srtf"]

    first = figures("1")
    assert first["ended"] == 30
    assert figures("1") == first
    assert figures("2") != first


def test_quotas_hold_in_a_simulation(trimtab: Trimtab, trace: str, cluster: str, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("tenants: [{name: a, limit: 3}, {name: b}]")

    def served(*more: str) -> list[float]:
        called = trimtab("simulate", trace, "--cluster", cluster, "--policy", "fifo", "--json", *more)
        tenants = json.loads(called.out)["policies"]["fifo"]["tenants"]
        return [tenant["served"] for tenant in sorted(tenants, key=lambda each: each["name"])]

    limited, free = served("--quotas", str(quotas)), served()
    assert limited[0] < free[0]
    quotas.write_text("tenants: [{name: a, limit: 2}]")
    called = trimtab("simulate", trace, "--cluster", cluster, "--quotas", str(quotas))
    assert called.status == 2
    assert "needs 3 accelerators, and tenant a may use at most 2" in called.error


def test_a_report_is_written_where_it_is_wanted(
    trimtab: Trimtab, trace: str, cluster: str, tmp_path: Path
) -> None:
    page = tmp_path / "out.html"
    called = trimtab("simulate", trace, "--cluster", cluster, "--report", str(page))
    assert called.status == 0
    assert f"report: {page}" in called.error
    assert "Plotly.newPlot" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("j,0,a,1,,,\n", "trace.csv:2: duration_s"),
        ("j,-1,a,1,60,,\n", "submit_s is -1"),
        ("j,0,a,1,-60,,\n", "duration_s is -60"),
        ("j,9,a,1,60,,\nk,8,a,1,60,,\n", "from 9 to 8"),
        ("j,0,a,64,60,,\n", "64 accelerators"),
    ],
)
def test_a_trace_that_cannot_be_simulated_is_one_sentence(
    trimtab: Trimtab, tmp_path: Path, cluster: str, rows: str, sentence: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + rows)
    called = trimtab("simulate", str(path), "--cluster", cluster)
    assert called.status == 2
    assert sentence in " ".join(called.error.split())
    assert called.out == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--policy", "fifos"), "fifo"),
        (("--policy", "fifo:depht=3"), "depth"),
        (("--faults", "node-lost=1/h"), "node-loss"),
        (("--part", "x"), '"x"'),
        (("--rigid",), "--rigid is for"),
        (("--report", "/proc/all.html"), "/proc/all.html"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(
    trimtab: Trimtab, trace: str, cluster: str, options: tuple[str, ...], sentence: str
) -> None:
    called = trimtab("simulate", trace, "--cluster", cluster, *options)
    assert called.status == 2
    assert sentence in " ".join(called.error.split())


def test_a_data_sets_folder_and_a_part_are_enough(trimtab: Trimtab, shared_data: Path) -> None:
    called = trimtab(
        "simulate", str(shared_data), "--part", "saturn-1", "--rigid", "--policy", "las", "--json"
    )
    found = json.loads(called.out)
    assert (found["trace"], found["jobs"], found["accelerators"], found["round"]) == (
        "saturn-1",
        160,
        64,
        360,
    )
    assert found["policies"]["las"]["ended"] == 160


def test_ctrl_c_shows_what_was_finished(trace: str, cluster: str, tmp_path: Path) -> None:
    long = tmp_path / "long.csv"
    long.write_text(Path(trace).read_text() + "last,90000,a,1,20000000,,5\n")
    policies = ("--policy", "fifo", "--policy", "las", "--policy", "srtf", "--policy", "priority")
    screen, terminal = os.openpty()
    child = subprocess.Popen(
        [TRIMTAB, "simulate", str(long), "--cluster", cluster, "--round", "1500", *policies],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    )
    os.close(terminal)
    try:
        shown = _read_until(screen, "las", 60.0)
        child.send_signal(signal.SIGINT)
        shown += _read_until(screen, None, 60.0)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
        os.close(screen)
    assert child.returncode == 130, shown
    assert "Traceback" not in shown
    assert "of 31 jobs" in shown
    assert "srtf, priority" in shown
    assert out.splitlines()[1].startswith("fifo")


def _read_until(screen: int, word: str | None, seconds: float) -> str:
    """What a terminal shows until a word is there, or until nobody writes any more."""
    shown, deadline = "", time.monotonic() + seconds
    while word is None or word not in shown:
        if not select.select([screen], [], [], max(0.0, deadline - time.monotonic()))[0]:
            pytest.fail(f"{word} was not shown in {seconds} s: {shown}")
        try:
            shown += os.read(screen, 4096).decode()
        except OSError:  # the other side is closed
            break
    return shown
