"""A store on each database; PostgreSQL is a private server from Debian's package."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from trimtab.core import Answer, Contribution, Decision, Estimate, Host, Profile, Series, Workload
from trimtab.store import Store, open_store


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("needs Debian's postgresql package")
    server = PostgresServer(found[-1].parent)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of each sort."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.sqlite"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    made = server.new_database()
    yield made
    server.drop(made)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of each sort with the tables of a store, copied from one that was made before."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "store.sqlite")
        yield f"sqlite:///{tmp_path}/store.sqlite"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    made = server.new_database(request.getfixturevalue("postgres_template"))
    yield made
    server.drop(made)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    made = postgres.new_database()
    open_store(made).close()
    return made.rpartition("/")[2]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture(scope="session")
def make_decision() -> Callable[..., Decision]:
    def make(id: str, **fields: Any) -> Decision:
        estimates = {
            "time": Estimate(100.0, 80.0, 120.0, 0.9, "s"),
            "cost": Estimate(5.0, 4.0, 6.0, 0.9, "$"),
        }
        rule = Answer("roofline", {"offer": "aws/us-east-1/g5.xlarge", "nodes": 2, "spot": False}, estimates)
        values: dict[str, Any] = {
            "created": 1.0,
            "kind": "recommend",
            "subject": "resnet",
            "action": rule.action,
            "estimates": estimates,
            "chosen_by": "rule",
            "rule": rule,
            "model": None,
            "alternatives": (Answer("roofline", {"offer": None, "nodes": 1}),),
            "reason": "the cheapest that ends in time",
            "contributions": (Contribution("memory bandwidth", 60.5),),
        }
        return Decision(id=id, **{**values, **fields})

    return make


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., Profile]:
    def make(id: str, created: float = 1.0, name: str = "resnet") -> Profile:
        series = Series(time=(0.0, 0.1), cpu=(0.5, 1.75), memory=(1e9, 2e9))
        host = Host("a processor", 2.0, 16e9)
        return Profile(id, created, Workload(name), host, 30.0, 0.1, "cgroup-v2", "terminated", -15, series)

    return make
