"""Where people go after signing in."""

from urllib.parse import quote

import pytest

from trimtab.serve.dashboard.door import target_of


@pytest.mark.parametrize(
    ("asked", "goes"),
    [
        ("/jobs/abc", "/jobs/abc"),
        ("//elsewhere.example", "/"),
        ("/\\elsewhere.example", "/"),
        ("http://elsewhere.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_to_our_own_pages_only(asked: str, goes: str) -> None:
    assert target_of({"query_string": f"then={quote(asked)}".encode()}) == goes
