"""`trimtab agent` and `trimtab top` as a user runs them, on a control group of our own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TRIMTAB = str(Path(sys.executable).parent / "trimtab")


@pytest.fixture
def container(growing: Callable[[float], str]) -> str:
    return growing(0.05)


def _run(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"TRIMTAB_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run([TRIMTAB, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def test_a_container_is_sized_shown_and_its_grants_are_in_the_ledger(container: str, tmp_path: Path) -> None:
    pools = tmp_path / "pools.yaml"
    pools.write_text(
        f"pools: [{{name: shop, cpu: 1, memory: 256MiB, withheld: 0.9, select: [{{cgroup: {container}}}]}}]"
    )
    environment = os.environ | {"TRIMTAB_HOME": str(tmp_path / "home")}
    agent = subprocess.Popen([TRIMTAB, "agent", "--pools", str(pools)], env=environment)
    try:
        shown = _until_shown(tmp_path / "home", container, "top", "--once")
        assert "256 MiB" in shown
        kept = _until_shown(tmp_path / "home", container, "decisions", "--json")
        assert "ran out of" in kept
    finally:
        agent.send_signal(signal.SIGINT)
        assert agent.wait(20) == 0


def _until_shown(home: Path, text: str, *arguments: str) -> str:
    """What the command prints, once it prints this."""
    deadline = time.monotonic() + 40
    while text not in (shown := _run(home, *arguments)).stdout:
        assert time.monotonic() < deadline, shown
        time.sleep(0.5)
    return shown.stdout


def test_without_an_agent_top_says_how_to_start_one(tmp_path: Path) -> None:
    shown = _run(tmp_path, "top", "--once")
    assert shown.returncode
    assert "no agent runs here; start one with trimtab agent --pools FILE" in shown.stderr


def test_a_wrong_file_of_pools_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text("pools: [{name: a, cpu: 1, memory: 1GiB}]")
    shown = _run(tmp_path, "agent", "--pools", str(tmp_path / "pools.yaml"))
    assert shown.returncode == 2
    assert "pools[0].select" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_without_a_cluster_kubernetes_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    (tmp_path / "pools.yaml").write_text(
        "pools: [{name: a, cpu: 1, memory: 1GiB, select: [{namespace: web}]}]"
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    shown = _run(tmp_path, "agent", "--pools", str(tmp_path / "pools.yaml"), "--kubernetes")
    assert shown.returncode == 2
    assert "no Kubernetes cluster is known here" in shown.stderr
