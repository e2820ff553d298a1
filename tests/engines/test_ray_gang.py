"""What the driver on a Ray cluster does that needs no cluster: variables, and workers left alone."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st


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
    given = [
        {"address": node, "port": 1000 + rank, "devices": {"CUDA_VISIBLE_DEVICES": str(rank)}}
        for rank, node in enumerate(nodes)
    ]
    found = gang.environments(nodes, given, whole_devices=whole)
    assert [each["RANK"] for each in found] == [str(rank) for rank in range(len(nodes))]
    assert {each["WORLD_SIZE"] for each in found} == {str(len(nodes))}
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in found} == {("node 0", "1000")}
    for rank, each in enumerate(found):
        if whole:
            seen = each["CUDA_VISIBLE_DEVICES"].split(",")
            assert seen[int(each["LOCAL_RANK"])] == str(rank), "a program finds its own by its local rank"
            assert len(seen) == nodes.count(nodes[rank])
        else:
            assert "CUDA_VISIBLE_DEVICES" not in each


def _worker(gang: Any, lease: float, script: str) -> Any:
    worker = gang.RayWorker(str(Path(gang.__file__).parent), lease)
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
