"""The whole system as a process: what it acknowledged is there after the worst end, and it ends in order."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from httpx import Client, HTTPError

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
ENOUGH = 100


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def up(home: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """`trimtab up` once it answers."""
    command = [TRIMTAB, "up", "--listen", f"127.0.0.1:{port}", "--no-dashboard", "--rate-limit", "0"]
    child = subprocess.Popen(
        command, env=os.environ | {"TRIMTAB_HOME": str(home)}, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                if Client().get(f"http://127.0.0.1:{port}/v1/ready").status_code == 200:
                    break
            except HTTPError:
                assert child.poll() is None, child.stderr and child.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield child
    finally:
        child.kill()
        child.wait()


def decision(number: int) -> dict[str, object]:
    rule = {"who": "rule:x", "action": {}, "estimates": {}}
    about = {"id": f"d{number:06}", "created": float(number), "kind": "test", "subject": "s", "action": {}}
    why = {"estimates": {}, "chosen_by": "rule:x", "model": None, "alternatives": [], "reason": "because"}
    return {"decision": {**about, **why, "rule": rule}}


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9_under_load_and_sigterm_ends_in_order(
    tmp_path: Path,
) -> None:
    port = free_port()
    acknowledged: list[str] = []
    with up(tmp_path, port) as child:

        def write(start: int) -> None:
            with Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
                for number in range(start, 10**6, 8):
                    try:
                        answer = client.post("/v1/decisions", json=decision(number))
                    except HTTPError:
                        return
                    assert answer.status_code == 201, answer.text
                    acknowledged.append(answer.json()["id"])

        threads = [threading.Thread(target=write, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < ENOUGH and child.poll() is None:
            time.sleep(0.01)
        child.kill()
        for thread in threads:
            thread.join(30)
    assert len(acknowledged) >= ENOUGH
    with up(tmp_path, port) as child, Client(base_url=f"http://127.0.0.1:{port}") as client:
        missing = [id for id in acknowledged if client.get(f"/v1/decisions/{id}").status_code != 200]
        assert missing == []
        with client.stream("GET", "/v1/events/stream") as listening:
            lines = listening.iter_lines()
            assert next(lines) == ": listening"
            child.send_signal(signal.SIGTERM)
            assert [line for line in lines if line.startswith("event")] == []
        assert child.wait(30) == 0


def test_a_second_one_at_the_same_address_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = taken.getsockname()[1]
        shown = subprocess.run(
            [TRIMTAB, "up", "--listen", f"127.0.0.1:{port}", "--no-dashboard"],
            env=os.environ | {"TRIMTAB_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert shown.returncode == 2
    assert f"cannot listen at 127.0.0.1:{port}" in shown.stderr
    assert "Traceback" not in shown.stderr
