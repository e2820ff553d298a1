"""A private PostgreSQL server from Debian's package, for tests."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest


class PostgresServer:
    """A server on a loopback port, in a temporary folder that only it uses."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        # The server's own user must reach its folder, which pytest's private temporary folders forbid.
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-postgres-"))
        self._data = self._folder / "data"
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._run("initdb", "-U", "trimtab", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def start(self) -> None:
        # Tests kill processes, not machines: what is written is safe with the kernel, and need not be synced.
        options = f"-F -h 127.0.0.1 -p {self._port} -k {self._folder}"
        # After a kill, the orphans of the old server hold its memory for a moment.
        for _ in range(20):
            if self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start", ok=False):
                return
            time.sleep(0.5)
        raise RuntimeError((self._folder / "log").read_text())

    def kill(self) -> None:
        """SIGKILL to the postmaster and all its children, as a power cut would."""
        postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        postmaster.suspend()
        for process in [postmaster, *postmaster.children(recursive=True)]:
            process.send_signal(signal.SIGKILL)
        postmaster.wait(10)

    def stop_smartly(self) -> None:
        """Ask it to stop once its clients have left; until then it rejects new ones."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGTERM)

    def remove(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop", ok=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_database(self, template: str = "template1") -> str:
        """The URL of a database like another, by default an empty one."""
        name = f"t{uuid.uuid4().hex}"
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected."""
        self.execute("postgres", f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def url(self, database: str) -> str:
        return f"postgresql://trimtab@127.0.0.1:{self._port}/{database}"

    def execute(self, database: str, statement: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: str, ok: bool = True) -> bool:
        command = [str(self._binaries / program), "-D", str(self._data), *arguments]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]
        # A server started with a pipe as its output would keep the pipe, and us, waiting.
        done = subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if ok and done.returncode:
            raise RuntimeError(f"{program} failed with status {done.returncode}")
        return done.returncode == 0


@contextmanager
def private_postgres() -> Iterator[PostgresServer]:
    """One that runs while the block does; skips the test where the package is missing."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("needs Debian's postgresql package")
    server = PostgresServer(found[-1].parent)
    try:
        server.start()
        yield server
    finally:
        server.remove()
