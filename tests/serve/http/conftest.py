"""A real server on loopback, a store with two tenants, and callers for each of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from httpx import Client

from trimtab.serve.http import Served, build
from trimtab.serve.listening import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store

Serve = Callable[..., tuple[str, Served]]
As = Callable[..., Client]


@pytest.fixture
def serve(store: Store) -> Iterator[Serve]:
    """Serve the store with settings other than the usual ones."""
    with ExitStack() as stack:

        def start(**told: object) -> tuple[str, Served]:
            settings = Settings(listen="127.0.0.1:0", dashboard=False, **{"rate_limit": 0.0, **told})  # type: ignore[arg-type]
            served = build(store, settings)
            server = stack.enter_context(listening(served, settings))
            scheme = "https" if settings.tls_certificate else "http"
            return f"{scheme}://127.0.0.1:{server.port}", served

        yield start


@pytest.fixture
def url(serve: Serve) -> str:
    return serve()[0]


@pytest.fixture
def caller(store: Store, url: str) -> Iterator[As]:
    """A client with a token of a tenant and a role; the first makes everybody need one."""
    with ExitStack() as stack:

        def make(tenant: str = "*", role: str = "admin", scopes: tuple[str, ...] = ("*",)) -> Client:
            _, text = store.tokens.make(f"{role} of {tenant}", tenant, Role(role), scopes)
            headers = {"Authorization": f"Bearer {text}"}
            return stack.enter_context(Client(base_url=url, headers=headers, timeout=30))

        yield make
