"""Pods of a node as the API server tells them, and a kubelet's groups managed by namespace and labels."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import until

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.engines import KubernetesError, core_api
from trimtab.kernel import Hierarchy, LimitedGroup
from trimtab.resize import NodeAgent, PodWatch, Pool, Selector, kubernetes_find

MIB = 2**20
UID = "8dbc56b6-a1f5-4a0d-b2e1-0c3d9f6f2c11"
OTHER = "11111111-a1f5-4a0d-b2e1-0c3d9f6f2c22"


@pytest.fixture
def watch(api_server: Any, api: Any) -> Iterator[PodWatch]:
    """Of a server that knows one pod from the beginning."""
    api_server.put("cart", UID, labels={"app": "shop"}, ids={"main": "aa11"})
    with PodWatch(api, "here") as watch:
        yield watch


def test_pods_are_known_at_once_and_followed(watch: PodWatch, api_server: Any) -> None:
    path = f"/kubepods/burstable/pod{UID}/aa11"
    found = watch.describe(path)
    assert found is not None
    assert (found.cgroup, found.namespace, found.labels["app"]) == (path, "web", "shop")
    assert found.labels["io.kubernetes.container.name"] == "main"
    assert watch.describe(f"/kubepods/pod{OTHER}/bb22") is None
    changes = watch.changes
    api_server.put("pay", OTHER, labels={"app": "pay"})
    api_server.put("elsewhere", "uid-2", node="there")
    until(lambda: watch.pod(OTHER))
    assert watch.changes > changes
    unnamed = watch.describe(f"/kubepods/pod{OTHER}/bb22")  # its id is not in the status yet
    assert unnamed is not None
    assert unnamed.labels["io.kubernetes.container.name"] == ""
    api_server.put("cart", UID, labels={"app": "cart"}, ids={"main": "aa11"})
    api_server.remove("pay")
    until(lambda: watch.pod(OTHER) is None)
    pod = watch.pod(UID)
    assert pod is not None
    assert pod.labels == {"app": "cart"}
    assert watch.pod("uid-2") is None


def test_a_cut_watch_goes_on_from_where_it_was(watch: PodWatch, api_server: Any) -> None:
    until(lambda: api_server.streams)
    api_server.put("pay", OTHER)
    until(lambda: watch.pod(OTHER))
    api_server.drop()
    api_server.remove("pay")
    until(lambda: watch.pod(OTHER) is None)
    lists = [request for request in api_server.requests if "watch=" not in request]
    assert len(lists) <= 2


def test_a_watch_too_old_to_go_on_begins_with_a_list(watch: PodWatch, api_server: Any) -> None:
    until(lambda: api_server.streams)
    del api_server.pods["web", "cart"]  # nobody is told
    api_server.put("pay", OTHER)
    api_server.forget_history()
    until(lambda: watch.pod(OTHER) and watch.pod(UID) is None)


def test_pods_stay_known_while_the_server_is_away_and_it_is_said_once(
    watch: PodWatch, api_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    until(lambda: api_server.streams)
    api_server.refusals += [(503, "etcd is away")] * 2
    api_server.drop()
    until(lambda: not api_server.refusals)
    assert watch.pod(UID)
    api_server.put("pay", OTHER)
    until(lambda: watch.pod(OTHER))
    said = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert len([each for each in said if "stay managed" in each]) == 1


def test_who_is_not_let_in_is_told_at_the_beginning(api_server: Any, api: Any) -> None:
    api_server.refusals.append((403, "pods is forbidden: User node cannot list"))
    with pytest.raises(KubernetesError, match="403: pods is forbidden"), PodWatch(api, "here"):
        pass


def test_only_the_namespaces_that_pools_name_are_asked_for(api_server: Any, api: Any, tmp_path: Path) -> None:
    pools = [Pool("a", 1.0, 1e9, (Selector(namespace="web"), Selector("/other/*")))]
    with kubernetes_find(Hierarchy(2, {"": tmp_path}), pools, "here", api):
        pass
    assert all(request.startswith("/api/v1/namespaces/web/pods?") for request in api_server.requests)


def test_the_cluster_is_found_by_its_configuration(
    api_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(BadInputError, match="Kubernetes"):
        core_api()
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": api_server.address}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(told))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    api_server.put("cart", UID)
    with PodWatch(core_api(), "here") as watch:
        assert watch.pod(UID)


def test_without_the_client_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingDependencyError, match=r"trimtab\[kubernetes\]"):
        core_api()


class Kubelet:
    """Pods as a kubelet makes them, in control groups of our own, with a process in each container."""

    def __init__(self, stack: ExitStack, root: LimitedGroup) -> None:
        self._stack = stack
        self.hierarchy = Hierarchy(1, root.folders)

    def group(self, path: str, cpus: float | None = None) -> LimitedGroup:
        """A group and those above it, with a limit if one is given."""
        for folder in self.hierarchy.folders.values():
            for part in [*reversed(Path(path[1:]).parents[:-1]), Path(path[1:])]:
                if not (folder / part).exists():
                    (folder / part).mkdir()
                    self._stack.callback(_remove, folder / part)
        group = LimitedGroup(1, {name: folder / path[1:] for name, folder in self.hierarchy.folders.items()})
        if cpus is not None:
            group.limit_cpus(cpus)
            group.limit_memory(cpus * 256 * MIB)
        return group

    def start(self, path: str, cpus: float | None = None, program: str = "/bin/sleep") -> None:
        group = self.group(path, cpus)
        child = os.posix_spawn(program, [program, "60"], os.environ)
        self._stack.callback(os.waitpid, child, 0)
        self._stack.callback(os.kill, child, signal.SIGKILL)
        group.add(child)

    def cpus(self, path: str) -> float | None:
        folder = self.hierarchy.folders["cpu"] / path[1:]
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return None if quota < 0 else quota / period

    def memory(self, path: str) -> int:
        return int((self.hierarchy.folders["memory"] / path[1:] / "memory.limit_in_bytes").read_text())


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        folder.rmdir()


@pytest.fixture
def kubelet(new_group: Callable[..., LimitedGroup]) -> Iterator[Kubelet]:
    with ExitStack() as stack:
        yield Kubelet(stack, new_group(version=1))


def _paths(driver: str, quality: str, uid: str, identity: str) -> tuple[str, str]:
    """A pod's group and a container's, as that driver names them."""
    if driver == "cgroupfs":
        pod = f"/kubepods{'' if quality == 'guaranteed' else f'/{quality}'}/pod{uid}"
        return pod, f"{pod}/{identity}"
    uid = uid.replace("-", "_")
    middle, word = ("", "") if quality == "guaranteed" else (f"/kubepods-{quality}.slice", f"-{quality}")
    pod = f"/kubepods.slice{middle}/kubepods{word}-pod{uid}.slice"
    return pod, f"{pod}/cri-containerd-{identity}.scope"


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("quality", ["guaranteed", "burstable", "besteffort"])
def test_a_pod_is_managed_by_its_labels_and_left_as_it_was(
    kubelet: Kubelet, api_server: Any, api: Any, driver: str, quality: str
) -> None:
    limit = None if quality == "besteffort" else 0.3
    pod, container = _paths(driver, quality, UID, "aa11")
    other_pod, other = _paths(driver, quality, OTHER, "bb22")
    for path in (pod, other_pod):
        kubelet.group(path, limit)
    for path in (container, other):
        kubelet.start(path, limit)
    api_server.put("cart", UID, labels={"app": "shop"}, ids={"main": "aa11"})
    api_server.put("else", OTHER, labels={"app": "else"}, ids={"main": "bb22"})
    pool = Pool("shop", 1.0, 512.0 * MIB, (Selector(labels={"app": "shop"}, namespace="web"),))
    before = [(kubelet.cpus(path), kubelet.memory(path)) for path in (pod, container, other_pod, other)]
    with kubernetes_find(kubelet.hierarchy, [pool], "here", api) as find:
        agent = NodeAgent([pool], kubelet.hierarchy, find)
        agent.step()
        assert [member.container.cgroup for member in agent.members] == [container]
        assert kubelet.cpus(container) == pytest.approx(1.0)  # alone it begins with all of the pool
        assert kubelet.cpus(pod) == (None if limit is None else pytest.approx(1.3))
        assert kubelet.memory(container) > 400 * MIB
        assert kubelet.memory(pod) > 400 * MIB
        agent.close()
    assert [
        (kubelet.cpus(path), kubelet.memory(path)) for path in (pod, container, other_pod, other)
    ] == before


AGENT = """
from pathlib import Path
from trimtab.kernel import Hierarchy
from trimtab.resize import Container, NodeAgent, Pool, Selector
folders = {{name: Path(path) for name, path in {folders!r}.items()}}
pool = Pool("shop", 1.0, 512.0 * 2**20, (Selector("/*"),))
NodeAgent([pool], Hierarchy(1, folders), lambda: [Container({path!r})]).run()
"""


def test_when_the_agent_is_killed_the_pod_gets_its_limits_back_too(kubelet: Kubelet) -> None:
    pod, container = _paths("cgroupfs", "burstable", UID, "aa11")
    kubelet.group(pod, 0.5)
    kubelet.start(container, 0.4)
    folders = {name: str(folder) for name, folder in kubelet.hierarchy.folders.items()}
    agent = subprocess.Popen([sys.executable, "-c", AGENT.format(folders=folders, path=container)])
    try:
        until(lambda: kubelet.cpus(pod) == pytest.approx(1.5))
        until(lambda: kubelet.cpus(container) != pytest.approx(0.4))
    finally:
        agent.kill()
        agent.wait()
    until(lambda: kubelet.cpus(pod) == pytest.approx(0.5))
    assert kubelet.cpus(container) == pytest.approx(0.4)
    until(lambda: kubelet.memory(pod) == 128 * MIB)


def test_labels_that_come_and_go_move_a_pod_in_and_out(kubelet: Kubelet, api_server: Any, api: Any) -> None:
    pod, container = _paths("cgroupfs", "burstable", UID, "aa11")
    kubelet.group(pod, 0.5)
    kubelet.start(container, 0.5)
    pool = Pool("shop", 1.0, 512.0 * MIB, (Selector(labels={"app": "shop"}),))
    with kubernetes_find(kubelet.hierarchy, [pool], "here", api) as find:
        agent = NodeAgent([pool], kubelet.hierarchy, find)
        agent.step()
        assert agent.members == []  # nobody knows that pod yet

        def steps_until(holds: Callable[[], bool]) -> None:
            until(lambda: agent.step() or holds())  # type: ignore[func-returns-value]

        api_server.put("cart", UID, labels={"app": "shop"})
        steps_until(lambda: len(agent.members) == 1)
        api_server.put("cart", UID, labels={"app": "else"})
        steps_until(lambda: agent.members == [])
        assert kubelet.cpus(container) == pytest.approx(0.5)
        assert kubelet.cpus(pod) == pytest.approx(0.5)
        agent.close()


def test_two_containers_of_a_pod_share_the_room_until_the_last_has_left(
    kubelet: Kubelet, api_server: Any, api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pod, first = _paths("systemd", "burstable", UID, "aa11")
    _, second = _paths("systemd", "burstable", UID, "bb22")
    kubelet.group(pod, 0.5)
    kubelet.start(first, 0.25)
    kubelet.start(second, 0.25)
    api_server.put("cart", UID, labels={"app": "shop"}, ids={"main": "aa11", "side": "bb22"})
    pool = Pool("shop", 1.0, 512.0 * MIB, (Selector(namespace="web"),))
    with kubernetes_find(kubelet.hierarchy, [pool], "here", api) as find, caplog.at_level(logging.WARNING):
        agent = NodeAgent([pool], kubelet.hierarchy, find)
        agent.step()
        assert len(agent.members) == 2
        assert kubelet.cpus(pod) == pytest.approx(1.5)
        kubelet.group(first).remove()
        agent.step()
        assert len(agent.members) == 1
        assert kubelet.cpus(pod) == pytest.approx(1.5)
        agent.close()
    assert kubelet.cpus(pod) == pytest.approx(0.5)
    assert [record for record in caplog.records if record.name.startswith("trimtab")] == []
