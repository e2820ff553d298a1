"""Real-time priority for a process that has to answer within milliseconds, and a bound on what it takes."""

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

_PRIORITY = 5  # of 1 to 99
_MOST = "50000:100000"  # µs on a core without a pause: it is told to end after the first, ended after both

BOUNDED = ("prlimit", f"--rttime={_MOST}", "--")
"""Words before a command that let the kernel end it if it spins. No priority without them."""


class NotAllowedError(TrimtabError):
    """This process may not give real-time priority."""


def prefer(pid: int) -> None:
    """Let a process that was started as `BOUNDED` run before others."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError as error:
        raise NotAllowedError(
            f"bfdd runs without real-time priority ({(error.strerror or str(error)).lower()}), so a busy "
            f"machine may look like a dead link; allow it, or use longer BFD intervals"
        ) from None


DAEMONS = ("zebra", "bfdd", "bgpd")
"""In the order in which they are started."""

USER = "frr"
_FOLDERS = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"), Path("/usr/sbin"), Path("/usr/local/sbin"))
_LEAST_VERSION = (8, 0)  # next hop groups in the kernel together with BFD at 10 ms
_INSTALL = "apt-get install frr"


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder of the daemons, the command that talks to them, and FRR's version."""

    folder: Path
    vtysh: Path
    version: str


@cache
def find_programs() -> Programs:
    """FRR as it is installed; a sentence when it is not, or is too old."""
    folder = next((folder for folder in _FOLDERS if (folder / DAEMONS[0]).is_file()), None)
    if folder is None:
        raise MissingDependencyError(f"FRR is not installed here: {_INSTALL}")
    absent = [name for name in DAEMONS if not (folder / name).is_file()]
    if absent:
        raise MissingDependencyError(
            f"FRR in {folder} has no {' and no '.join(absent)}; install a whole one: {_INSTALL}"
        )
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        raise MissingDependencyError(f"FRR's vtysh is not installed here: {_INSTALL}")
    _check_user()
    return Programs(folder, Path(vtysh), _checked_version(folder / DAEMONS[0]))


def _check_user() -> None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise MissingDependencyError(
            f"there is no user {USER} here, as whom FRR's daemons run: {_INSTALL}"
        ) from None


def _checked_version(zebra: Path) -> str:
    """`zebra --version` begins with "zebra version 8.4.4"."""
    told = subprocess.run([zebra, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)\S*", told)
    if match is None:
        raise MissingDependencyError(f"{zebra} does not tell its version; install a working FRR: {_INSTALL}")
    if (int(match[1]), int(match[2])) < _LEAST_VERSION:
        raise MissingDependencyError(
            f"FRR {match[0].split()[1]} is too old; {'.'.join(map(str, _LEAST_VERSION))} or later is needed"
        )
    return match[0].split()[1]


log = logging.getLogger(__name__)

_MARK = "TRIMTAB_FRR"  # "FOLDER/NAME DIGEST"
_LONGEST_SOCKET = 107  # bytes of a path in sockaddr_un
_KEPT = 30  # s that routes of a zebra that died stay in the kernel, for bgpd to tell them to the next one
_MOST_LOG = 16 << 20  # bytes
_START, _STOP, _ANSWER = 10.0, 5.0, 30.0  # s
# Where each daemon makes a folder for what it leaves when it crashes.
_CRASHES = Path("/var/tmp/frr")  # nosec B108 # FRR's choice; we only remove there, and follow no link
_CALLED = {*DAEMONS, "nsenter", "prlimit"}  # the last two until they become a daemon
_PROMPT = "bfdd"  # the daemon whose timers are of milliseconds


class Daemons:
    """The daemons of one host or switch. `files` is the configuration of each by its name."""

    def __init__(
        self, folder: Path, files: Mapping[str, str], namespace: str | None = None, realtime: bool = True
    ) -> None:
        self.folder = folder.resolve()
        self._files = {name: files[name] for name in DAEMONS if name in files}
        self._namespace = namespace
        self._realtime = realtime
        self._running: dict[str, Process] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        if len(bytes(self.folder / "zebra.vty")) > _LONGEST_SOCKET:
            raise BadInputError(f"{folder} is too long a path for the daemons' sockets; name a shorter one")

    def start(self) -> None:
        """Start what does not run yet, and what runs with another configuration anew."""
        find_programs()
        if os.geteuid() != 0:
            raise BadInputError("FRR's daemons are started by root; run this as root")
        self._write_files(*self._files)
        found = self._find()
        for name, content in self._files.items():
            process, digest = found.get(name, (None, ""))
            if process is not None and digest == digest_of(content):
                self._running[name] = process
            else:
                if process is not None:
                    self._end(name, process)
                self._launch(name)

    def missing(self) -> tuple[str, ...]:
        """Daemons that have died and that nobody has started again. Logs that have grown large begin anew."""
        self._reap()
        self._trim_logs()
        dead = [name for name in self._files if not _alive(self._running.get(name))]
        if dead:
            found = self._find()
            for name in dead:
                self._running.pop(name, None)
                if name in found:
                    self._running[name] = found[name][0]
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
        """Start a daemon anew, whether or not it has died; not with a file that was edited by hand."""
        if name not in self._files:
            raise NotFoundError(f"there is no daemon {name} in {self.folder}: {', '.join(self._files)} are")
        self._write_files(name)
        process, _ = self._find().get(name, (None, ""))
        if process is not None:
            self._end(name, process)
        self._launch(name)

    def process(self, name: str) -> Process | None:
        """A daemon that runs, whoever started it."""
        return self._find().get(name, (None, ""))[0]

    def stop(self) -> None:
        """End all daemons and remove what they and `start` wrote, except files edited by hand."""
        found = self._find()
        for name in reversed(DAEMONS):
            if name in found:
                self._end(name, found[name][0])
            for ending in (".vty", ".pid", ".log"):
                (self.folder / f"{name}{ending}").unlink(missing_ok=True)
            with contextlib.suppress(BadInputError):
                check_untouched(self._configuration(name))
                self._configuration(name).unlink(missing_ok=True)
        for socket in ("zserv.api", "bfdd.sock"):
            (self.folder / socket).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's things may be in there too
            self.folder.rmdir()

    def log(self, name: str) -> Path:
        """What a daemon says, appended over its restarts."""
        return self.folder / f"{name}.log"

    def words(self, name: str) -> list[Any]:
        """The command that a daemon is."""
        words: list[Any] = [find_programs().folder / name, "-f", self._configuration(name)]
        words += ["-i", self.folder / f"{name}.pid", "-z", self.folder / "zserv.api"]
        words += ["--vty_socket", self.folder, "-P", "0", "--log", "stdout", "--log-level", "debugging"]
        if name == "zebra":
            words += ["-K", str(_KEPT)]
        if name == "bfdd":
            words += ["--bfdctl", self.folder / "bfdd.sock"]
        return words

    def vtysh(self, command: str) -> str:
        """What the daemons answer."""
        words = [str(find_programs().vtysh), "--vty_socket", str(self.folder), "-c", command]
        try:
            done = subprocess.run(words, capture_output=True, errors="replace", check=False, timeout=_ANSWER)
        except subprocess.TimeoutExpired:
            raise TrimtabError(f"FRR in {self.folder} has not answered for {_ANSWER:g} s") from None
        if done.returncode != 0:
            told = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing is said"]
            raise TrimtabError(
                f"FRR in {self.folder} does not answer to {command!r}: {one_line(told[0]):.200}"
            )
        return done.stdout

    def _configuration(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def _write_files(self, *names: str) -> None:
        """All of them, or none when one was edited by hand."""
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
        """Daemons of this folder that run, whoever started them, and what they were configured with."""
        found: dict[str, tuple[Process, str]] = {}
        for process in processes(_CALLED):
            mark, _, digest = environment(process.pid).get(_MARK, "").rpartition(" ")
            if mark and Path(mark).parent == self.folder and not process.zombie:
                found[Path(mark).name] = (process, digest)
        return found

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[name]

    def _launch(self, name: str) -> None:
        (self.folder / f"{name}.vty").unlink(missing_ok=True)
        words = ["nsenter", f"--net=/run/netns/{self._namespace}", "--"] if self._namespace else []
        words += BOUNDED if name == _PROMPT else ()
        digest = digest_of(self._files[name])
        with self.log(name).open("ab") as said:
            child = subprocess.Popen(
                [*words, *self.words(name)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", _MARK: f"{self.folder / name} {digest}"},
            )
        self._children[name] = child
        self._wait_for(name, child)
        process = read_process(child.pid)
        if process is not None:
            self._running[name] = process
        if name == _PROMPT and self._realtime:
            self._prefer(child.pid)

    def _wait_for(self, name: str, child: subprocess.Popen[bytes]) -> None:
        """Until it can be talked to."""
        ready = [self.folder / f"{name}.vty"] + ([self.folder / "zserv.api"] if name == "zebra" else [])
        give_up = time.monotonic() + _START
        while not all(path.exists() for path in ready):
            if child.poll() is not None or time.monotonic() > give_up:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                child.wait()
                raise TrimtabError(f"FRR's {name} does not start: {self._last_words(name):.200}")
            time.sleep(0.005)

    def _trim_logs(self) -> None:
        for name in self._files:
            with contextlib.suppress(FileNotFoundError):
                if self.log(name).stat().st_size > _MOST_LOG:
                    os.truncate(self.log(name), 0)

    def _last_words(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").strip().splitlines()
        return one_line(lines[-1]) if lines else f"it says nothing in {self.log(name)}"

    def _prefer(self, pid: int) -> None:
        try:
            prefer(pid)
        except NotAllowedError as error:
            self._realtime = False
            log.warning("%s", error)

    def _end(self, name: str, process: Process) -> None:
        """Ask it to end, make it end, and remove the folder it keeps for a crash."""
        for number, patience in ((signal.SIGTERM, _STOP), (signal.SIGKILL, _STOP)):
            if _alive(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            give_up = time.monotonic() + patience
            while _alive(process) and time.monotonic() < give_up:
                time.sleep(0.005)
        self._reap()
        self._running.pop(name, None)
        remove_crash_folder(process.pid)


def remove_crash_folder(pid: int) -> None:
    """Remove what a daemon that had to end made for the case that it crashes."""
    for path in _CRASHES.glob(f"*.{pid}"):
        shutil.rmtree(path, ignore_errors=True)


def _alive(process: Process | None) -> bool:
    now = read_process(process.pid) if process is not None else None
    return now is not None and process is not None and now.started == process.started and not now.zombie
