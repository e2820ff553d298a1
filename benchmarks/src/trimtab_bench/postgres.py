"""A private PostgreSQL server of Debian's package, which a bench starts, kills and starts again."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab_bench.processes import quiet_port

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
_SETTINGS = ("max_wal_size=64MB", "min_wal_size=32MB", "shared_buffers=32MB")
_READY = 60.0  # s until it must answer
_END = 15.0  # s that it has to end


class Postgres:
    """A server on a loopback port with its data in a folder, which the user "postgres" must reach.

    It ends with this process. What it has acknowledged survives its own death, not the machine's.
    """

    def __init__(self, folder: Path) -> None:
        servers = sorted(_DEBIAN.glob("*/bin/initdb"))
        if not servers:
            raise MissingDependencyError("there is no PostgreSQL server here; apt-get install postgresql")
        self._binaries = servers[-1].parent  # of the newest
        self._folder, self._port = folder, quiet_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(folder, _USER, _USER)
        options = ("-U", "trimtab", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        made = subprocess.run(
            [*self._as_user(), str(self._binaries / "initdb"), "-D", str(folder / "data"), *options],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise TrimtabError(f"initdb failed with status {made.returncode}: {made.stderr.strip()}")

    @property
    def url(self) -> str:
        return f"postgresql://trimtab@127.0.0.1:{self._port}/postgres"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, log: Path | None = None) -> None:
        """Start the server; it answers a little later."""
        words = ["-F", "-h", "127.0.0.1", "-p", str(self._port), "-k", str(self._folder)]
        words += [word for setting in _SETTINGS for word in ("-c", setting)]
        with (log or Path(os.devnull)).open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *self._as_user("--pdeathsig", "KILL"),
                    *(str(self._binaries / "postgres"), "-D", str(self._folder / "data"), *words),
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it answers."""
        import psycopg

        deadline = time.monotonic() + _READY
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if not self.alive or time.monotonic() > deadline:
                    raise TrimtabError(f"PostgreSQL does not answer: {error}") from None
                time.sleep(0.05)

    def end(self, number: int = signal.SIGQUIT) -> None:
        """End it by a signal and wait: SIGQUIT is its immediate shutdown, without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _as_user(self, *options: str) -> list[str]:
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", *options]


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database while the block runs."""
    # Not in the home: the server's own user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-postgres-"))
    try:
        server = Postgres(folder)
        try:
            server.start()
            server.wait()
            yield server.url
        finally:
            server.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
