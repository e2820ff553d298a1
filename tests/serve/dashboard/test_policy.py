"""What browsers are told, and which requests are ours."""

import pytest

from trimtab.serve.dashboard.door import from_our_page, security_headers
from trimtab.serve.http.middleware import names_this_machine


def scope(**headers: str) -> dict[str, object]:
    return {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}


@pytest.mark.parametrize(
    ("origin", "ours"),
    [
        ("http://localhost:7430", True),
        ("https://localhost:7430", True),
        ("http://localhost", False),
        ("http://elsewhere.example", False),
        ("http://localhost:7430.elsewhere.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_only_our_own_pages_change_something(origin: str, ours: bool) -> None:
    assert from_our_page(scope(host="localhost:7430", origin=origin)) is ours


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost:7430", True),
        ("127.0.0.1:7430", True),
        ("[::1]:7430", True),
        ("[::1]", True),
        ("elsewhere.example:7430", False),
        ("", False),
    ],
)
def test_a_name_that_was_bent_to_this_machine_opens_nothing(host: str, ours: bool) -> None:
    assert names_this_machine(host) is ours


def test_a_pages_own_scripts_run_by_a_number_and_no_others() -> None:
    policy = dict(security_headers("abc"))[b"content-security-policy"].decode()
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert scripts == "script-src 'self' 'unsafe-eval' 'nonce-abc'"
