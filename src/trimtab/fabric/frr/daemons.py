"""FRR's daemons of one host or switch: found, started, restarted, asked and ended."""

import contextlib
import logging
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
    one_line,
)
from trimtab.fabric.frr.configuration import check_untouched, digest_of, sealed
from trimtab.kernel import Process, environment, processes, read_process, write_whole

DAEMONS = ("zebra", "bfdd", "bgpd")
"""In the order in which they are started."""
USER = "frr"
_FOLDERS = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"), Path("/usr/sbin"), Path("/usr/local/sbin"))
_LEAST_VERSION = (8, 0)  # next hop groups in the kernel together with BFD at 10 ms
_INSTALL = "apt-get install frr"

_MARK = "TRIMTAB_FRR"  # environment variable: "FOLDER/NAME DIGEST"
_LONGEST_SOCKET = 107  # bytes of a path in sockaddr_un
_KEPT = 30  # s that routes of a zebra that died stay in the kernel, until bgpd sends them to the next one
_MOST_LOG = 16 << 20  # bytes
_START, _STOP, _ANSWER = 10.0, 5.0, 30.0  # s
# Where each daemon makes a folder for crash reports.
_CRASHES = Path("/var/tmp/frr")  # nosec B108 # FRR's choice; we only remove there, and follow no link
_NAMES = {*DAEMONS, "nsenter", "prlimit"}  # of processes; the last two until they become a daemon

_REALTIME = "bfdd"  # the daemon whose timers are of milliseconds
_PRIORITY = 5  # of 1 to 99
# The kernel ends a real-time process that spins: SIGXCPU after 50 ms on a core, SIGKILL after 100.
_BOUNDED = ("prlimit", "--rttime=50000:100000", "--")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder of the daemons, the command that talks to them, and FRR's version."""

    folder: Path
    vtysh: Path
    version: str


@cache
def find_programs() -> Programs:
    """The installed FRR; MissingDependencyError when there is none, or it is too old.

    `zebra --version` begins with "zebra version 8.4.4".
    """
    folder = next((folder for folder in _FOLDERS if (folder / DAEMONS[0]).is_file()), None)
    if folder is None:
        raise MissingDependencyError(f"FRR is not installed here: {_INSTALL}")
    absent = [name for name in DAEMONS if not (folder / name).is_file()]
    if absent:
        raise MissingDependencyError(
            f"FRR in {folder} has no {' and no '.join(absent)}; reinstall it: {_INSTALL}"
        )
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        raise MissingDependencyError(f"FRR's vtysh is not installed here: {_INSTALL}")
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise MissingDependencyError(
            f"there is no user {USER} here, which FRR's daemons run as: {_INSTALL}"
        ) from None
    zebra = folder / DAEMONS[0]
    output = subprocess.run([zebra, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version ((\d+)\.(\d+)\S*)", output)
    if match is None:
        raise MissingDependencyError(f"{zebra} prints no version; install a working FRR: {_INSTALL}")
    if (int(match[2]), int(match[3])) < _LEAST_VERSION:
        raise MissingDependencyError(
            f"FRR {match[1]} is too old; {'.'.join(map(str, _LEAST_VERSION))} or later is needed"
        )
    return Programs(folder, Path(vtysh), match[1])


class Daemons:
    """The daemons of one host or switch. `files` is the configuration of each by its name."""

    def __init__(self, folder: Path, files: Mapping[str, str], namespace: str | None = None) -> None:
        self.folder = folder.resolve()
        self._files = {name: files[name] for name in DAEMONS if name in files}
        self._namespace = namespace
        self._may_prefer = True
        self._running: dict[str, Process] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        if len(bytes(self.folder / "zebra.vty")) > _LONGEST_SOCKET:
            raise BadInputError(f"{folder} is too long a path for the daemons' sockets; name a shorter one")

    def start(self) -> None:
        """Start daemons that do not run yet, and restart those that run with another configuration."""
        find_programs()
        if os.geteuid() != 0:
            raise BadInputError("FRR's daemons are started by root; run this as root")
        self._write_files(*self._files)
        running = self._find()
        for name, content in self._files.items():
            process, digest = running.get(name, (None, ""))
            if process is not None and digest == digest_of(content):
                self._running[name] = process
            else:
                if process is not None:
                    self._end(name, process)
                self._launch(name)

    def missing(self) -> tuple[str, ...]:
        """Daemons that have died and were not started again. Logs that have grown large are emptied."""
        self._reap()
        for name in self._files:
            with contextlib.suppress(FileNotFoundError):
                if self.log_file(name).stat().st_size > _MOST_LOG:
                    os.truncate(self.log_file(name), 0)
        dead = [name for name in self._files if not _is_alive(self._running.get(name))]
        if dead:
            running = self._find()
            for name in dead:
                self._running.pop(name, None)
                if name in running:
                    self._running[name] = running[name][0]
        return tuple(name for name in dead if name not in self._running)

    def wait_for_death(self, seconds: float, wake: int) -> bool:
        """Whether a daemon that was not missing dies within that time; ends early when `wake` is readable."""
        waiting = select.poll()
        waiting.register(wake, select.POLLIN)
        with contextlib.ExitStack() as stack:
            for process in self._running.values():
                try:
                    handle = os.pidfd_open(process.pid)
                except ProcessLookupError:
                    return True
                stack.callback(os.close, handle)
                waiting.register(handle, select.POLLIN)
            return any(handle != wake for handle, _ in waiting.poll(seconds * 1000))

    def restart(self, name: str) -> None:
        """Restart a daemon, dead or alive; refuses a configuration file that was edited by hand."""
        if name not in self._files:
            raise NotFoundError(
                f"there is no daemon {name} in {self.folder}; it has {', '.join(self._files)}"
            )
        self._write_files(name)
        process = self.process(name)
        if process is not None:
            self._end(name, process)
        self._launch(name)

    def process(self, name: str) -> Process | None:
        """A daemon that runs, started by this or another process."""
        return self._find().get(name, (None, ""))[0]

    def stop(self) -> None:
        """End all daemons and remove their files and those of `start`, except files edited by hand."""
        running = self._find()
        for name in reversed(DAEMONS):
            if name in running:
                self._end(name, running[name][0])
            for ending in (".vty", ".pid", ".log"):
                (self.folder / f"{name}{ending}").unlink(missing_ok=True)
            with contextlib.suppress(BadInputError):
                check_untouched(self._configuration(name))
                self._configuration(name).unlink(missing_ok=True)
        for socket in ("zserv.api", "bfdd.sock"):
            (self.folder / socket).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files may be in there too
            self.folder.rmdir()

    def command(self, name: str) -> list[Any]:
        """The command that starts a daemon."""
        words: list[Any] = [find_programs().folder / name, "-f", self._configuration(name)]
        words += ["-i", self.folder / f"{name}.pid", "-z", self.folder / "zserv.api"]
        words += ["--vty_socket", self.folder, "-P", "0", "--log", "stdout", "--log-level", "debugging"]
        if name == "zebra":
            words += ["-K", str(_KEPT)]
        if name == "bfdd":
            words += ["--bfdctl", self.folder / "bfdd.sock"]
        return words

    def vtysh(self, command: str) -> str:
        """The daemons' answer to a command of FRR's shell."""
        words = [str(find_programs().vtysh), "--vty_socket", str(self.folder), "-c", command]
        try:
            done = subprocess.run(words, capture_output=True, errors="replace", check=False, timeout=_ANSWER)
        except subprocess.TimeoutExpired:
            raise TrimtabError(f"FRR in {self.folder} has not answered for {_ANSWER:g} s") from None
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it gives no reason"]
            raise TrimtabError(
                f"FRR in {self.folder} does not answer {command!r}: {one_line(output[0]):.200}"
            )
        return done.stdout

    def _configuration(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _write_files(self, *names: str) -> None:
        """Write all of them, or none when one was edited by hand."""
        for name in names:
            check_untouched(self._configuration(name))
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            shutil.chown(self.folder, USER, USER)
            for name in names:
                path, content = self._configuration(name), sealed(self._files[name])
                if not path.exists() or path.read_text(encoding="utf-8") != content:
                    write_whole(path, content)
                shutil.chown(path, USER, USER)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {one_line(str(error))}") from None

    def _find(self) -> dict[str, tuple[Process, str]]:
        """Running daemons of this folder, started by any process, and the digest of their configuration."""
        running: dict[str, tuple[Process, str]] = {}
        for process in processes(_NAMES):
            mark, _, digest = environment(process.pid).get(_MARK, "").rpartition(" ")
            if mark and Path(mark).parent == self.folder and not process.zombie:
                running[Path(mark).name] = (process, digest)
        return running

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[name]

    def _launch(self, name: str) -> None:
        """Start a daemon and wait until it answers."""
        (self.folder / f"{name}.vty").unlink(missing_ok=True)
        words = ["nsenter", f"--net=/run/netns/{self._namespace}", "--"] if self._namespace else []
        words += _BOUNDED if name == _REALTIME else ()
        digest = digest_of(self._files[name])
        with self.log_file(name).open("ab") as output:
            child = subprocess.Popen(
                [*words, *self.command(name)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", _MARK: f"{self.folder / name} {digest}"},
            )
        self._children[name] = child
        sockets = [self.folder / f"{name}.vty"] + ([self.folder / "zserv.api"] if name == "zebra" else [])
        give_up = time.monotonic() + _START
        while not all(path.exists() for path in sockets):
            if child.poll() is not None or time.monotonic() > give_up:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                child.wait()
                lines = self.log_file(name).read_text(errors="replace").strip().splitlines()
                reason = one_line(lines[-1]) if lines else f"{self.log_file(name)} is empty"
                raise TrimtabError(f"FRR's {name} does not start: {reason:.200}")
            time.sleep(0.005)
        process = read_process(child.pid)
        if process is not None:
            self._running[name] = process
        if name == _REALTIME and self._may_prefer:
            self._give_priority(child.pid)

    def _give_priority(self, pid: int) -> None:
        """Give a `_BOUNDED` process real-time priority; where that is not allowed, warn once."""
        try:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
        except OSError as error:
            self._may_prefer = False
            log.warning(
                "bfdd runs without real-time priority (%s), so a busy machine may look like a dead link; "
                "allow it, or use longer BFD intervals",
                (error.strerror or str(error)).lower(),
            )

    def _end(self, name: str, process: Process) -> None:
        """Send SIGTERM, then SIGKILL, and remove the folder of its crash reports."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if _is_alive(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            give_up = time.monotonic() + _STOP
            while _is_alive(process) and time.monotonic() < give_up:
                time.sleep(0.005)
        self._reap()
        self._running.pop(name, None)
        remove_crash_folder(process.pid)


def remove_crash_folder(pid: int) -> None:
    """Remove the folder that a daemon made for crash reports."""
    for path in _CRASHES.glob(f"*.{pid}"):
        shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: Process | None) -> bool:
    now = read_process(process.pid) if process is not None else None
    return now is not None and process is not None and now.started == process.started and not now.zombie
