"""A store on each database; PostgreSQL is a private server from Debian's package."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer, private_postgres

from trimtab.core import Answer, Contribution, Decision, Estimate, Host, Profile, Series, Workload
from trimtab.store import Store, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


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
