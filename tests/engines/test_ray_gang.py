"""What the driver on a Ray cluster does that needs no cluster: variables, and workers left alone."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trimtab.engines.ray.engine import split_notes


@pytest.fixture(scope="module")
def gang() -> Any:
    pytest.importorskip("ray", reason="needs ray[default]==2.60.0")
    from trimtab.engines.ray import gang

    return gang


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=4), whole=st.booleans())
def test_ranks_are_unique_and_devices_are_seen_in_order_of_local_ranks(
    gang: Any, counts: list[int], whole: bool
) -> None:
    nodes = [f"node {index}" for index, count in enumerate(counts) for _ in range(count)]
    places = [
        {"address": node, "port": 1000 + rank, "devices": {"CUDA_VISIBLE_DEVICES": str(rank)}}
        for rank, node in enumerate(nodes)
    ]
    environments = gang.environments(nodes, places, whole_devices=whole)
    assert [variables["RANK"] for variables in environments] == [str(rank) for rank in range(len(nodes))]
    assert {variables["WORLD_SIZE"] for variables in environments} == {str(len(nodes))}
    assert {(variables["MASTER_ADDR"], variables["MASTER_PORT"]) for variables in environments} == {
        ("node 0", "1000")
    }
    for rank, variables in enumerate(environments):
        if whole:
            devices = variables["CUDA_VISIBLE_DEVICES"].split(",")
            assert devices[int(variables["LOCAL_RANK"])] == str(rank), (
                "a program finds its own by its local rank"
            )
            assert len(devices) == nodes.count(nodes[rank])
        else:
            assert "CUDA_VISIBLE_DEVICES" not in variables


def _worker(gang: Any, lease: float, script: str) -> Any:
    worker = gang.RayWorker(str(Path(gang.__file__).parent), lease, ["PATH"], "LC_")
    worker.start(["sh", "-c", script], {"WORD": "it's"}, "/")
    return worker


def _all(worker: Any) -> tuple[bytes, str]:
    """What it writes until its end, and how it ends."""
    output, deadline = b"", time.monotonic() + 20
    while True:
        lines, end = worker.look()
        output += lines
        if end is not None:
            return output, end
        assert time.monotonic() < deadline, output


def test_a_worker_passes_on_whole_lines_and_what_is_left_at_the_end(gang: Any) -> None:
    worker = _worker(gang, 20.0, "echo $WORD; printf half; sleep 0.6; echo ' a line'; printf tail; exit 2")
    first = b""
    while not first:
        first, _ = worker.look()
    assert first == b"it's\n"
    assert _all(worker) == (b"half a line\ntail", "2")


def test_a_worker_inherits_only_named_variables(gang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hidden")
    monkeypatch.setenv("LC_ALL", "C")
    assert _all(_worker(gang, 20.0, 'echo "<$GH_PAT> <$LC_ALL>"')) == (b"<> <C>\n", "0")


def test_a_log_keeps_its_notes_and_its_last_lines(gang: Any, tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(1000)]
    with (tmp_path / "log").open("a") as log:
        log.write('Ray\'s own\n\nS3 {"what": "driver", "time": 1.0}\n' + "".join(lines[:500]))
        log.write('\nS3 {"what": "started", "time": 2.0}\n' + "".join(lines[500:900]))
        log.flush()
        assert gang.trim_log(log.fileno(), "S3", 10_000, 0) == 0
        dropped = gang.trim_log(log.fileno(), "S3", 1_000, 0)
        log.write("".join(lines[900:]))
        log.flush()
        dropped = gang.trim_log(log.fileno(), "S3", 500, dropped)
    output, notes = split_notes((tmp_path / "log").read_text(), "S3")
    assert [note["what"] for note in notes] == ["driver", "started", "dropped"]
    assert notes[-1]["bytes"] == dropped
    assert "".join(lines)[dropped:] == output
    assert output.startswith("line ")
    assert 400 < len(output) <= 500


def test_a_worker_runs_a_command_beside_its_own(gang: Any, tmp_path: Path) -> None:
    worker = _worker(gang, 20.0, "exec sleep 60")
    save = f'echo "$WORD" > {tmp_path}/saved; exit 3'
    assert worker.execute(["sh", "-c", save], 20.0) == {"status": 3, "problem": ""}
    assert (tmp_path / "saved").read_text() == "it's\n"
    assert worker.execute(["sleep", "60"], 0.2) == {"status": None, "problem": ""}
    answer = worker.execute(["no-such-command"], 20.0)
    assert answer["status"] is None
    assert "no-such-command" in answer["problem"]
    worker.signal("KILL")
    assert _all(worker)[1] == "137"


def test_a_worker_nobody_looks_at_ends_its_command(gang: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    _worker(gang, 0.5, f"echo $$ > {pid_file}; exec sleep 60")
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) or _lives(int(pid_file.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
