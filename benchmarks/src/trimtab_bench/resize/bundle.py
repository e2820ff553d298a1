"""Services as real containers: runc, a file system of the host's folders, limits from the start."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab.kernel import Hierarchy, Owner
from trimtab.kernel.cgroup import PROCS, V2, pids
from trimtab_bench.processes import free_port
from trimtab_bench.resize import service

_PERIOD = 100_000  # microseconds
_START = 20.0  # s a service may take to answer
_HOST_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/etc/alternatives")
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Limit:
    """CPUs and bytes; None for no limit."""

    cpus: float | None = None
    memory: float | None = None


class ServiceContainer:
    """One container with one service; it is started again when it dies."""

    def __init__(self, folder: Path, group: str, role: str, port: int) -> None:
        self.role, self.port = role, port
        self.cgroup = f"{group}/{role}"
        self.kills = 0
        self._id = group.strip("/").replace("/", "-") + "-" + role
        self._bundle, self._state = folder / role, folder / "state"
        self._bundle.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, limit: Limit) -> None:
        (self._bundle / "config.json").write_text(json.dumps(_config(self, self._rootfs(), limit)))
        command = ["runc", "--root", str(self._state), "run", "--bundle", str(self._bundle), self._id]
        with (self._bundle / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_ready(self) -> None:
        """Wait until the service answers."""
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        log = (self._bundle / "log").read_text(errors="replace").strip()[-300:]
        raise TrimtabError(f"the container {self.role} did not start: {log or 'its log is empty'}")

    def died(self) -> bool:
        """Whether it has ended by itself; a kill by the kernel is counted."""
        if self._process is None or self._process.poll() is None:
            return False
        self.kills += self._process.returncode == _KILLED
        self._process = None
        return True

    def stop(self) -> None:
        """Kill the container and delete its state."""
        if self._process is not None and self._process.poll() is None:
            _runc(self._state, "kill", self._id, "KILL")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self._process = None
        _runc(self._state, "delete", "--force", self._id)

    def _rootfs(self) -> Path:
        root = self._bundle / "rootfs"
        root.mkdir(exist_ok=True)
        for host in _host_folders():
            inside = root / host.lstrip("/")
            if os.path.islink(host):
                if not inside.is_symlink():
                    inside.symlink_to(os.readlink(host))
            else:
                inside.mkdir(parents=True, exist_ok=True)
        (root / "service.py").write_text(Path(str(service.__file__)).read_text())
        return root


class ServiceContainers:
    """All containers of a trial, below one control group; removed when the context ends."""

    def __init__(self, roles: Sequence[str], name: str) -> None:
        if shutil.which("runc") is None:
            raise MissingDependencyError(
                "this bench needs runc, which runs containers; Debian has it as runc"
            )
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-"))
        self.group = f"/{name}"
        self.containers = [ServiceContainer(self._folder, self.group, role, free_port()) for role in roles]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for container in self.containers:
            container.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def parent_group(hierarchy: Hierarchy, name: str) -> Iterator[None]:
    """A control group for containers, with controllers passed down and no swap; removed at the end."""
    folders = [root / name for root in hierarchy.folders.values()]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        if hierarchy.version == 2:
            (folder / V2.subtree_control).write_text("+cpu +memory")
            (folder / V2.swap_limit).write_text("0")
    try:
        yield
    finally:
        for root in _roots(hierarchy):
            _remove(root / name)


def sweep(hierarchy: Hierarchy) -> None:
    """Remove groups that a killed bench left behind, with their processes."""
    for root in _roots(hierarchy):
        for folder in root.glob("trimtab-*"):
            owner = Owner.of(folder.name)
            if owner is None or not owner.is_gone():
                continue
            for procs in folder.rglob(PROCS):
                for pid in pids(procs.parent):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            _remove(folder)


def _roots(hierarchy: Hierarchy) -> list[Path]:
    """Folders that hold groups of containers: in version 1 runc makes one below every controller."""
    roots = list(hierarchy.folders.values())
    if hierarchy.version == 1:
        roots += [folder for folder in roots[0].parent.iterdir() if folder.is_dir()]
    return list(dict.fromkeys(root.resolve() for root in roots))


def _remove(folder: Path) -> None:
    """Remove a group and those below; one that still has a process is tried again for a while."""
    for _ in range(50):
        for inside in sorted(folder.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                inside.rmdir()
        with contextlib.suppress(FileNotFoundError, OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(0.1)


def _host_folders() -> list[str]:
    """Folders of the host that Python needs: its libraries and its own installation."""
    return [*(path for path in _HOST_FOLDERS if os.path.exists(path)), sys.base_prefix]


def _config(container: ServiceContainer, root: Path, limit: Limit) -> dict[str, Any]:
    python = os.path.realpath(sys.executable)
    resources: dict[str, Any] = {"cpu": {"period": _PERIOD}, "memory": {}}
    if limit.cpus is not None:
        resources["cpu"]["quota"] = max(1000, int(limit.cpus * _PERIOD))
    if limit.memory is not None:
        resources["memory"]["limit"] = int(limit.memory)
    mounts = [
        {"destination": host, "type": "bind", "source": host, "options": ["rbind", "ro"]}
        for host in _host_folders()
        if not os.path.islink(host)
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [python, "-I", "/service.py", container.role, str(container.port)],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "oomScoreAdj": 500,
        },
        "root": {"path": str(root)},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, *mounts],
        "linux": {
            "cgroupsPath": container.cgroup,
            "resources": resources,
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
        },
    }


def _runc(state: Path, *arguments: str) -> None:
    subprocess.run(["runc", "--root", str(state), *arguments], capture_output=True, check=False)
