"""`trimtab up`, `trimtab token` and `trimtab agent join` as a user runs them, on a group of our own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

TRIMTAB = str(Path(sys.executable).parent / "trimtab")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"TRIMTAB_HOME": str(home), "COLUMNS": "200"}


def _run(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TRIMTAB, *arguments], env=_environment(home), capture_output=True, text=True, timeout=60
    )


def _start(stack: ExitStack, home: Path, *arguments: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen([TRIMTAB, *arguments], env=_environment(home), stdout=subprocess.PIPE, text=True)
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _until_shown(home: Path, text: str, *arguments: str) -> str:
    """What the command prints, once it prints this."""
    deadline = time.monotonic() + 40
    while text not in (shown := _run(home, *arguments)).stdout:
        assert time.monotonic() < deadline, shown
        time.sleep(0.5)
    return shown.stdout


def test_a_node_joins_is_sized_and_shown_and_its_grants_are_in_the_controllers_ledger(
    stack: ExitStack, growing: Callable[[float], str], tmp_path: Path
) -> None:
    container, metrics = growing(0.1), _port()
    here, there = tmp_path / "controller", tmp_path / "node"
    (tmp_path / "pools.yaml").write_text(
        f"pools: [{{name: shop, cpu: 1, memory: 256MiB, withheld: 0.9, select: [{{cgroup: {container}}}]}}]"
    )
    up = _start(
        stack,
        here,
        *("up", "--pools", str(tmp_path / "pools.yaml"), "--agents-listen", f"127.0.0.1:{_port()}"),
        *("--agents-join", f"127.0.0.1:{_port()}", "--agents-metrics", f"127.0.0.1:{metrics}", "--no-api"),
    )
    assert up.stdout is not None
    token = up.stdout.readline().strip()
    joined = _run(there, "agent", "join", token, "--name", "node-1")
    assert joined.returncode == 0, joined.stderr
    assert "this node is node-1" in joined.stdout
    again = _run(there, "agent", "join", token)
    assert again.returncode == 2
    assert "has been used" in again.stderr
    assert "Traceback" not in again.stderr
    further = _run(here, "token").stdout.strip()
    assert further.startswith("tt1.")
    assert further != token

    agent = _start(stack, there, "agent")
    assert f"node-1:{container}" in _until_shown(here, container, "top", "--once")
    assert container in _until_shown(there, container, "top", "--once")
    kept = _until_shown(here, "ran out of", "decisions", "--json")
    assert f"node-1:{container}" in kept
    with urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as page:
        assert f'container="node-1:{container}"' in page.read().decode()
    for child in (agent, up):
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    assert _run(here, "token").returncode == 2


def test_a_node_that_has_not_joined_and_a_wrong_token_are_one_sentence(tmp_path: Path) -> None:
    alone = _run(tmp_path, "agent")
    assert alone.returncode == 2
    assert "trimtab agent join TOKEN" in alone.stderr
    wrong = _run(tmp_path, "agent", "join", "hello")
    assert wrong.returncode == 2
    assert "that is not a token" in wrong.stderr
    assert "Traceback" not in alone.stderr + wrong.stderr


def test_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text("pools: [{name: a, cpu: 1, memory: 1GiB, select: [{cgroup: /a}]}]")
    shown = _run(tmp_path, "up", "--pools", str(tmp_path / "pools.yaml"), "--agents-listen", "nowhere")
    assert shown.returncode == 2
    assert '"nowhere" is not an address' in shown.stderr


def test_a_taken_port_for_metrics_ends_it_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text("pools: [{name: a, cpu: 1, memory: 1GiB, select: [{cgroup: /a}]}]")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--agents-listen", f"127.0.0.1:{_port()}", "--agents-join", f"127.0.0.1:{_port()}")
        options = (*options, "--agents-metrics", address, "--no-api")
        shown = _run(tmp_path, "up", "--pools", str(tmp_path / "pools.yaml"), *options)
    assert shown.returncode == 2
    assert f"metrics cannot be served at {address}" in shown.stderr
    assert "Traceback" not in shown.stderr
