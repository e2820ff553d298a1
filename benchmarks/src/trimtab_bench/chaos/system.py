"""The system under test: `trimtab up` and its runs, a resize agent, a database, a small disk, a clock.

It plays the part of the service manager: a server, an agent or a database that has ended is started again.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab.kernel import die_with_parent
from trimtab_bench.chaos import worker
from trimtab_bench.chaos.plan import AGENT, SCHEDULER, SERVER, STARTER, SUPERVISOR, SWITCH, WORKER, WRITER
from trimtab_bench.postgres import Postgres
from trimtab_bench.processes import quiet_port
from trimtab_bench.serve.processes import TRIMTAB

_DISK_SIZE = "384m"
_RESTART = 1.0  # s after which a server or a database that has ended is started again
_END = 30.0  # s that a server has to end
_SOURCE = Path(__file__).with_name("shifted_clock.c")
_COMPILERS = ("cc", "gcc", "clang")
_UNSET = ("TRIMTAB_STORE", "TRIMTAB_TOKEN", "TRIMTAB_SERVER", "TRIMTAB_CONFIG", "LD_PRELOAD")


def c_compiler() -> str:
    """The program that compiles the library that shifts clocks."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise MissingDependencyError(
            "this bench compiles a library that shifts clocks; apt-get install clang"
        )
    return compiler


class ShiftedClock:
    """A wall clock that only processes with its `environment` see; the monotonic clock stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        library = folder / "shifted_clock.so"
        words = [c_compiler(), "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        compiled = subprocess.run(words, capture_output=True, text=True, check=False)
        if compiled.returncode:
            raise TrimtabError(f"{_SOURCE} cannot be compiled: {compiled.stderr.strip()}")
        self.environment = {"LD_PRELOAD": str(library), "TRIMTAB_BENCH_CLOCK": str(self._file)}
        self._file.write_bytes(bytes(8))

    def shift(self, seconds: int) -> None:
        """Set it so far from the machine's clock, at once."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


class SmallDisk:
    """A file system of its own, which can be filled and released."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE},mode=755", "trimtab-chaos", str(folder)]
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
        if mounted.returncode:
            raise TrimtabError(f"no file system can be mounted at {folder}: {mounted.stderr.strip()}")

    def fill(self) -> None:
        """Leave not a byte."""
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            free = os.fstatvfs(file)
            with contextlib.suppress(OSError):
                os.posix_fallocate(file, 0, free.f_bavail * free.f_frsize)
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file, bytes(size))
        finally:
            os.close(file)

    def release(self) -> None:
        self._filler.unlink(missing_ok=True)


def unmount(folder: Path) -> None:
    """Unmount a file system as soon as nothing uses it."""
    if os.path.ismount(folder):
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


@dataclass(slots=True)
class RestartedCommand:
    """A command that is started again after it has ended; all its output goes to one log."""

    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    start_at: float = 0.0
    starts: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def keep_running(self, now: float) -> bool:
        """Start it if it is due; whether it was started."""
        if self.pid:
            return False
        if self.process is not None:
            self.statuses[self.process.returncode] += 1
            self.process, self.start_at = None, max(self.start_at, now + _RESTART)
        if now < self.start_at:
            return False
        self.starts += 1
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),
            )
        return True

    def end(self) -> None:
        """End it in order; a process that does not end in time is killed."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_END)
            except subprocess.TimeoutExpired:
                self.statuses[-signal.SIGALRM] += 1
                self.process.kill()
                self.process.wait()


@dataclass(slots=True)
class RunRecords:
    """Lines that workers have written so far."""

    file: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[dict[str, Any]]:
        with self.file.open("rb") as file:
            file.seek(self._offset)
            complete, end, _ = file.read().rpartition(b"\n")
        self._offset += len(complete) + len(end)
        self.lines += map(json.loads, complete.splitlines())
        return self.lines

    def done(self) -> set[str]:
        """Ids of runs whose worker has done its work."""
        return {line["run"] for line in self.read() if line["what"] == "end"}


class System:
    """All processes of a run of the bench, by role; `folder` has its files, `scratch` the disk."""

    def __init__(self, folder: Path, scratch: Path, store: str) -> None:
        self.folder = folder
        self.clock = ShiftedClock(folder)
        self.disk = SmallDisk(scratch / "disk")
        self.port = quiet_port()
        self.records = RunRecords(folder / worker.RECORDS)
        self.records.file.touch()
        (folder / worker.LOCKS).mkdir()
        self.home, self._agent_home = folder / "home", folder / "agent-home"
        self.database = Postgres(self.disk.folder) if store == "postgresql" else None
        self._database_at = 0.0
        self.url = self.database.url if self.database else f"sqlite:///{self.disk.folder}/trimtab.sqlite"
        up = [*TRIMTAB, "up", "--listen", f"127.0.0.1:{self.port}", "--store", self.url, "--no-dashboard"]
        self.server = RestartedCommand(
            [*up, "--rate-limit", "0"], self._environment(self.home), folder / "server.log"
        )
        pools = folder / "pools.yaml"
        agent = [*TRIMTAB, "agent", "--pools", str(pools)]
        self.agent = RestartedCommand(agent, self._environment(self._agent_home), folder / "agent.log")
        self.stopped: set[int] = set()

    def _environment(self, home: Path) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _UNSET}
        return {**inherited, **self.clock.environment, "TRIMTAB_HOME": str(home)}

    def keep_running(self, agent_started: Callable[[], None]) -> None:
        """Start again what has ended and is due."""
        now = time.monotonic()
        if self.database and not self.database.alive and now >= self._database_at:
            self.database.start(self.folder / "postgres.log")
            self._database_at = now + _RESTART
        self.server.keep_running(now)
        if self.agent.keep_running(now):
            agent_started()

    def restart_database(self, number: int, seconds: float) -> None:
        """End the database by a signal; it is started again after so many seconds."""
        assert self.database is not None
        self.database.end(number)
        self._database_at = time.monotonic() + seconds

    @property
    def agent_works(self) -> bool:
        return bool(self.agent.pid) and self.agent.pid not in self.stopped

    def by_role(self) -> dict[str, list[int]]:
        """Process ids by role, in order."""
        roles: dict[str, list[int]] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                role = self._role(process)
                if role and process.status() != psutil.STATUS_ZOMBIE:
                    roles.setdefault(role, []).append(process.pid)
        return {role: sorted(pids) for role, pids in roles.items()}

    def _role(self, process: psutil.Process) -> str:
        pid, words = process.pid, process.cmdline()
        if pid in (self.server.pid, self.agent.pid):
            return SERVER if pid == self.server.pid else AGENT
        if not words:
            return ""
        if worker.__file__ in words and str(self.folder) in words:
            return WORKER if "-I" in words[:3] else ""
        if self.server.pid and process.ppid() == self.server.pid:
            return next((role for role in (WRITER, SCHEDULER) if role in words[-1]), "")
        if self.run_of_supervisor(pid):
            return SUPERVISOR
        if self.server.pid and parent_of(process.ppid()) == self.server.pid:
            return STARTER if "supervisor" in words[-1] else ""
        home = process.environ().get("TRIMTAB_HOME")
        return SWITCH if home == str(self._agent_home) else ""

    def run_of_supervisor(self, pid: int) -> str:
        """Id of the run whose log is a supervisor's standard error; "" if it is none."""
        try:
            log = Path(os.readlink(f"/proc/{pid}/fd/2"))
        except OSError:
            return ""
        return log.parent.name if log.is_relative_to(self.home / "engines") else ""

    def send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def stop(self, pid: int) -> None:
        self.send(pid, signal.SIGSTOP)
        self.stopped.add(pid)

    def resume(self, *pids: int) -> None:
        for pid in pids or tuple(self.stopped):
            self.send(pid, signal.SIGCONT)
            self.stopped.discard(pid)

    @contextlib.contextmanager
    def unfinished(self, workers: list[int]) -> Iterator[list[int]]:
        """Workers that have not done their work, of those given, paused while the block runs.

        A command that has done its work, and whose exit status is lost in the instant after, cannot be told
        from one that has not. So no fault hits that instant.
        """
        for pid in workers:
            self.send(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and any(map(_runs, workers)):
            time.sleep(0.002)
        try:
            done = self.records.done()
            yield [pid for pid in workers if worker.run_of(pid) not in done]
        finally:
            for pid in workers:
                if pid not in self.stopped:
                    self.send(pid, signal.SIGCONT)

    def end_runs(self) -> None:
        """End all runs that are left, with their groups."""
        from trimtab.engines.local.engine import LocalEngine

        engine = LocalEngine(place=self.home / "engines" / "local")
        for run_id in engine.running():
            with contextlib.suppress(TrimtabError):
                engine.stop(run_id, 0.0)

    def close(self) -> None:
        """End everything, by force where needed; nothing is left but files."""
        self.resume()
        self.disk.release()
        self.server.end()
        self.agent.end()
        if (self.home / "engines" / "local").exists():
            self.end_runs()
        for role, pids in self.by_role().items():
            if role == SWITCH:  # it restores limits first
                psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], _END)
            for pid in pids:
                self.send(pid, signal.SIGKILL)
        if self.database:
            self.database.end()
        if self.database is None:  # evidence
            for file in self.disk.folder.glob("trimtab.sqlite*"):
                shutil.copy(file, self.folder)
        unmount(self.disk.folder)


def parent_of(pid: int) -> int:
    """Its parent's process id; 0 if it is gone."""
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.Error:
        return 0


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.Error:
        return False
