"""A store of a test's own, a real server on loopback, and callers for tenants of it.

A busy machine must not fail a law: Hypothesis' examples may take their time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from httpx import Client
from hypothesis import settings as hypothesis_settings

from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store, open_store

hypothesis_settings.register_profile("unhurried", deadline=None)
hypothesis_settings.load_profile("unhurried")

Serve = Callable[..., str]
As = Callable[..., Client]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with open_store(f"sqlite:///{tmp_path}/trimtab.sqlite") as made:
        yield made


@pytest.fixture
def serve(store: Store) -> Iterator[Serve]:
    """Serve the store with settings other than the usual ones."""
    with ExitStack() as stack:

        def start(**result: object) -> str:
            settings = Settings(listen="127.0.0.1:0", dashboard=False, **{"rate_limit": 0.0, **result})  # type: ignore[arg-type]
            server = stack.enter_context(listening(HttpApplication(store, settings), settings))
            scheme = "https" if settings.tls_certificate else "http"
            return f"{scheme}://127.0.0.1:{server.port}"

        yield start


@pytest.fixture
def url(serve: Serve) -> str:
    return serve()


@pytest.fixture
def caller(store: Store, url: str) -> Iterator[As]:
    """A client with a token of a tenant and a role; the first makes everybody need one."""
    with ExitStack() as stack:

        def make(tenant: str = "*", role: str = "admin", scopes: tuple[str, ...] = ("*",)) -> Client:
            _, text = store.tokens.make(f"{role} of {tenant}", tenant, Role(role), scopes)
            headers = {"Authorization": f"Bearer {text}"}
            return stack.enter_context(Client(base_url=url, headers=headers, timeout=30))

        yield make
