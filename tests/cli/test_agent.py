"""`trimtab agent` and `trimtab top` as a user runs them, on a control group of our own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import ContainerGroup, LimitJournal, Owner, SafeLimits, mounted

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


@pytest.fixture
def agent(container: str, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """An agent that manages the container."""
    pools = tmp_path / "pools.yaml"
    pools.write_text(f"pools: [{{name: shop, cpu: 1, memory: 256MiB, select: [{{cgroup: {container}}}]}}]")
    environment = os.environ | {"TRIMTAB_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [TRIMTAB, "agent", "--pools", str(pools)], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: _killer_is_off(container))
        yield process
    finally:
        process.kill()
        process.communicate()


def _killer_is_off(container: str) -> bool:
    hierarchy = mounted()
    assert hierarchy is not None
    with ContainerGroup(hierarchy, container) as group:
        return "oom_kill_disable 1" in group.read_text("memory.oom_control")


def test_a_running_agent_is_ended_before_its_limits_are_restored(
    agent: "subprocess.Popen[str]", container: str, tmp_path: Path
) -> None:
    refused = _run(tmp_path / "home", "agent", "restore")
    assert refused.returncode == 2
    assert str(agent.pid) in refused.stderr
    assert _killer_is_off(container)
    done = _run(tmp_path / "home", "agent", "restore", "--stop")
    assert done.returncode == 0, done.stderr
    assert agent.wait() == 0
    assert not _killer_is_off(container)


def test_limits_of_a_killed_agent_are_restored_by_the_command(container: str, tmp_path: Path) -> None:
    hierarchy, owner = mounted(), Owner.current()
    assert hierarchy is not None
    journal = LimitJournal(tmp_path / "home" / "limits", hierarchy)
    journal.path = journal.path.with_stem(Owner(owner.namespace, owner.pid, owner.started + 1).name("a"))
    with ContainerGroup(hierarchy, container) as group:
        journal.write(
            {container: SafeLimits(container, group.cpu_limit(), group.memory_limit(), group.inode)}
        )
        group.limit_cpus(0.1)
        group.write_text("memory.oom_control", "1")
        done = _run(tmp_path / "home", "agent", "restore")
        assert done.returncode == 0, done.stderr
        assert container in done.stdout
        assert group.cpu_limit() is None
    assert not _killer_is_off(container)
    again = _run(tmp_path / "home", "agent", "restore")
    assert (again.returncode, again.stdout) == (0, "")


def test_the_status_names_the_processes_of_the_agent(
    agent: "subprocess.Popen[str]", container: str, tmp_path: Path
) -> None:
    file = tmp_path / "home" / "agent.json"
    until(file.exists)
    until(lambda: len(json.loads(file.read_text())["processes"]["switches"]) == 2)
    status = json.loads(file.read_text())
    assert status["processes"]["agent"] == [agent.pid]
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in status["processes"]["switches"]]
    assert names == ["trimtab-switch\n"] * 2
    assert status["unmanaged"] == {}


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
    assert "KUBECONFIG" in shown.stderr
