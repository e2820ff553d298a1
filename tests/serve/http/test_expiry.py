"""A token that ends while it is used: the stream that it opened ends with it, and nothing more is heard."""

import time

import pytest
from httpx import Client

from trimtab.serve.http import stream as hub_module
from trimtab.store import Role, Store

LIVES = 2.0  # s


def test_a_stream_ends_when_its_token_expires_though_nothing_happens(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT", 0.3)
    token, text = store.tokens.make("brief", "a", Role.VIEWER, lifetime=LIVES)
    headers = {"Authorization": f"Bearer {text}"}
    with Client(base_url=url, headers=headers, timeout=20) as client:
        with client.stream("GET", "/v1/events/stream") as answer:
            assert answer.status_code == 200
            lines = list(answer.iter_lines())  # until the server ends it
        assert token.expires is not None
        assert time.time() >= token.expires
        assert lines[0] == ": listening"
        assert lines[-3:-1] == ["event: dropped", 'data: "your token opens nothing any more"']
        assert client.get("/v1/jobs").status_code == 401
