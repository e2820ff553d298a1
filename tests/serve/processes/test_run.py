"""The whole system as a process: what it acknowledged is there after the worst end, and it ends in order."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
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


def refused(home: Path, *options: str) -> str:
    """Standard error of a `trimtab up` that must refuse to start."""
    shown = subprocess.run(
        [TRIMTAB, "up", "--no-api", "--seconds", "0.1", *options],
        env=os.environ | {"TRIMTAB_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 2, shown.stderr
    assert "Traceback" not in shown.stderr
    return shown.stderr


def test_a_store_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "trimtab.sqlite"
    command = [TRIMTAB, "up", "--no-api", "--seconds", "0.1"]
    environment = os.environ | {"TRIMTAB_HOME": str(tmp_path)}
    subprocess.run(command, env=environment, check=True, timeout=120)
    content = store.read_bytes()
    for file in tmp_path.glob("trimtab.sqlite*"):
        file.unlink()
    assert str(store) in refused(tmp_path)
    assert not store.exists()
    damaged = bytearray(content)
    damaged[4096 * 2 : 4096 * 6] = os.urandom(4096 * 4)
    store.write_bytes(damaged)
    assert "damaged" in refused(tmp_path)
    assert store.read_bytes() == damaged
    store.unlink()
    subprocess.run([*command, "--new-store"], env=environment, check=True, timeout=120)


@pytest.mark.slow
def test_killed_children_are_replaced_without_a_traceback(tmp_path: Path) -> None:
    port = free_port()
    command = [TRIMTAB, "up", "--listen", f"127.0.0.1:{port}", "--no-dashboard"]
    with ExitStack() as stack:
        errors = stack.enter_context((tmp_path / "errors").open("wb"))
        child = subprocess.Popen(command, env=os.environ | {"TRIMTAB_HOME": str(tmp_path)}, stderr=errors)
        stack.callback(child.wait)
        stack.callback(child.kill)
        client = stack.enter_context(Client(base_url=f"http://127.0.0.1:{port}", timeout=60))

        def ready() -> bool:
            try:
                return client.get("/v1/ready").status_code == 200
            except HTTPError:
                return False

        def until(condition: Callable[[], object]) -> None:
            deadline = time.monotonic() + 120
            while not condition():
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)

        until(ready)
        process = psutil.Process(child.pid)
        for round in range(3):
            until(lambda: len(process.children()) == 2)
            for victim in process.children():
                victim.kill()
            for number in range(20):
                answer = client.post("/v1/decisions", json=decision(100 * round + number))
                assert answer.status_code in (201, 503), answer.text
        until(lambda: client.post("/v1/decisions", json=decision(1000)).status_code == 201)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    said = (tmp_path / "errors").read_text()
    assert "it is started again" in said
    assert "Traceback" not in said
