"""Every engine behind one harness, for the contract that all of them keep."""

import contextlib
import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_kubernetes import Kubelets, KubernetesServer, write_kubeconfig
from small_ray import SmallRay, open_ray
from small_slurm import SmallSlurm, open_slurm

from trimtab.core import Engine, EngineEvent, Launch, TrimtabError, Workload
from trimtab.engines import KubernetesEngine, LocalEngine, RayEngine, SlurmEngine
from trimtab.engines.ray.engine import RayCluster
from trimtab.kernel import LimitedGroup, NoGroupError

FINAL = ("ended", "failed", "lost")


def until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for a condition; the bound is there to end a test that would never end."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


class EngineHarness(ABC):
    """An engine with two nodes, a folder of its own for its runs, and the events it has reported."""

    nodes: tuple[str, str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = list[EngineEvent]()
        self.engine = self.open()

    @abstractmethod
    def open(self) -> Engine:
        """A new engine object on the same folder, as after a restart."""

    @abstractmethod
    def lose(self, run_id: str) -> None:
        """Remove a run so that its end cannot be known."""

    def launch(self, key: str, script: str, *, workers: tuple[int, ...] = (1,), **more: object) -> str:
        """Launch a shell script with so many workers on each node."""
        parts = tuple(zip(self.nodes, workers, strict=False))
        workload = Workload(key, command=("sh", "-c", script))
        return self.engine.launch(Launch(key, workload, parts, 0.1, 64.0 * 2**20, **more))  # type: ignore[arg-type]

    def log(self, run_id: str) -> str:
        """Output of the run so far."""
        return self.engine.log(run_id).read_text()

    def events(self, run_id: str, what: str) -> list[EngineEvent]:
        """All events of a run once `what` was reported. A cluster that is slow to answer is polled again."""

        def reported() -> list[EngineEvent]:
            with contextlib.suppress(TrimtabError):
                self.seen.extend(self.engine.watch())
            return [event for event in self.seen if event.run_id == run_id]

        until(lambda: {what, *FINAL} & {event.what for event in reported()})
        found = reported()
        assert what in [event.what for event in found], (found, self.log(run_id))
        return found

    def close(self) -> None:
        """Stop all running jobs."""
        for run_id in self.engine.running():
            self.engine.stop(run_id, 0.0)


class LocalHarness(EngineHarness):
    nodes = ("local-1", "local-2")

    def open(self) -> Engine:
        return LocalEngine("?nodes=2&gpus=2&accelerator=t4", self.folder)

    def lose(self, run_id: str) -> None:
        """Kill all its processes, and let the record be of an earlier boot of the machine."""
        path = self.folder / run_id / "start.json"
        start = json.loads(path.read_text())
        for pid in (start["guard"], start["keeper"], *start["pids"]):
            os.kill(pid, signal.SIGKILL)
        path.write_text(json.dumps({**start, "boot": "before"}))


class SlurmHarness(EngineHarness):
    nodes = ("n1", "n2")

    def __init__(self, folder: Path, cluster: SmallSlurm) -> None:
        self._cluster = cluster
        super().__init__(folder)

    def open(self) -> Engine:
        return SlurmEngine("", self.folder)

    def lose(self, run_id: str) -> None:
        """Report a node failure of the job as Slurm does."""
        (node,) = self.nodes[:1]
        self._cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        self._cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")
        until(lambda: node in {each.name for each in self.engine.nodes()})


class RayHarness(EngineHarness):
    nodes = ("big", "small")

    def __init__(self, folder: Path, cluster: SmallRay) -> None:
        self._address = cluster.gate.address
        super().__init__(folder)

    def open(self) -> Engine:
        return RayEngine(self._address, self.folder, patience=8.0)

    def lose(self, run_id: str) -> None:
        cluster = RayCluster(self._address)
        cluster.stop(f"trimtab-{run_id}")
        until(lambda: (job := cluster.job(f"trimtab-{run_id}")) is None or job.over)
        cluster.forget(f"trimtab-{run_id}")


class KubernetesHarness(EngineHarness):
    nodes = ("left", "right")

    def __init__(self, folder: Path, server: KubernetesServer) -> None:
        self._server = server
        super().__init__(folder)

    def open(self) -> Engine:
        return KubernetesEngine("training", self.folder)

    def lose(self, run_id: str) -> None:
        name = f"trimtab-{run_id}"
        for kind, each in list(self._server.objects):
            if kind in ("jobs", "pods") and each.startswith(name):
                self._server.put(kind, self._server.objects[kind, each], "DELETED")


@contextlib.contextmanager
def open_harness(
    name: str, folder: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[EngineHarness]:
    """The harness of an engine with whatever it needs; skips with the reason where that is not there."""
    with contextlib.ExitStack() as stack:
        harness = _made(name, folder, free_port, monkeypatch, stack)
        yield harness
        harness.close()


def _made(
    name: str,
    folder: Path,
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    stack: contextlib.ExitStack,
) -> EngineHarness:
    runs = folder / "runs"
    if name == "local":
        try:
            LimitedGroup.create().remove()
        except NoGroupError as error:
            pytest.skip(f"needs the right to make control groups: {error}")
        return LocalHarness(runs)
    if name == "slurm":
        cluster = stack.enter_context(open_slurm(free_port))
        monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
        return SlurmHarness(runs, cluster)
    if name == "ray":
        return RayHarness(runs, stack.enter_context(open_ray(free_port)))
    assert name == "kubernetes", f"{name} has no harness here"
    pytest.importorskip("kubernetes", reason="needs kubernetes==37.0.2")
    server = KubernetesServer()
    stack.callback(server.close)
    for node in KubernetesHarness.nodes:
        server.node(node, devices={"nvidia.com/gpu": "4"}, labels={"accelerator": "t4"})
    write_kubeconfig(folder / "config", server.address)
    monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
    outputs = folder / "outputs"
    outputs.mkdir()
    stack.callback(Kubelets(server, outputs).close)
    return KubernetesHarness(runs, server)
