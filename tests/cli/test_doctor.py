"""`trimtab doctor`: a table or an object, a status that a script can go by."""

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

Trimtab = Callable[..., Any]


def test_what_is_missing_is_shown_with_what_it_disables_and_decides_the_status(trimtab: Trimtab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        called = trimtab("doctor", "--only", "ports", "--listen", address)
    assert called.status == 2
    assert "missing" in called.out
    assert "disables: the API and the dashboard" in called.out
    assert "ss -ltnp" in called.out
    assert trimtab("doctor", "--only", "ports", "--listen", address).status == 0


def test_programs_get_one_object(trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_LISTEN", "127.0.0.1:0")
    called = trimtab("doctor", "--json", "--only", "ports", "--only", "clock")
    told = json.loads(called.out)
    assert told["fit"] is True
    assert {each["group"] for each in told["checks"]} == {"ports", "clock"}
    assert set(told["checks"][0]) == {"group", "what", "state", "seen", "disables", "mend", "needed"}


def test_a_health_check_asks_the_service_itself(trimtab: Trimtab) -> None:
    called = trimtab("doctor", "--running", "--listen", "127.0.0.1:1")
    assert called.status == 2
    assert "nothing serves at 127.0.0.1:1" in called.error


def test_a_group_that_is_not_there_is_refused(trimtab: Trimtab) -> None:
    called = trimtab("doctor", "--only", "gpus")
    assert called.status == 2
    assert "did you mean gpu?" in called.error
