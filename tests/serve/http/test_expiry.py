"""A token that expires while it is used: the stream that it opened ends with it."""

import time

import pytest
from httpx import Client

from trimtab.kernel import SteadyClock
from trimtab.serve.http import stream as hub_module
from trimtab.store import Role, Store


def test_a_stream_ends_when_its_token_expires_though_nothing_happens(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT", 0.3)
    wall, uptime = time.time(), SteadyClock.monotonic
    _, text = store.tokens.make("brief", "a", Role.VIEWER, lifetime=3600.0)
    headers = {"Authorization": f"Bearer {text}"}
    with Client(base_url=url, headers=headers, timeout=60) as client:
        with client.stream("GET", "/v1/events/stream") as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert next(lines) == ": listening"
            monkeypatch.setattr(
                time, "time", lambda: wall + 86400.0
            )  # a wall clock that is set changes nothing
            assert client.get("/v1/jobs").status_code == 200
            monkeypatch.setattr(SteadyClock, "monotonic", lambda clock: uptime(clock) + 7200.0)
            assert "event: dropped" in list(lines)  # until the server ends it
        assert client.get("/v1/jobs").status_code == 401
