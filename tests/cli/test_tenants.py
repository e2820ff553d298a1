"""`trimtab tenants`: made, changed, listed; circles and broken promises refused."""

import json
from collections.abc import Callable
from typing import Any

Trimtab = Callable[..., Any]


def test_tenants_are_made_changed_listed_and_forgotten(trimtab: Trimtab) -> None:
    assert "trimtab tenants set NAME" in trimtab("tenants", "ls").out
    assert trimtab("tenants", "set", "lab", "--guarantee", "8", "--limit", "16").status == 0
    assert trimtab("tenants", "set", "vision", "--parent", "lab", "--guarantee", "6").status == 0
    assert trimtab("tenants", "set", "vision", "--weight", "2").status == 0
    assert trimtab("tenants", "set", "lab", "--no-limit").status == 0
    shown = {each["name"]: each for each in json.loads(trimtab("tenants", "ls", "--json").out)}
    assert shown["vision"] == {
        "name": "vision",
        "parent": "lab",
        "guarantee": 6.0,
        "weight": 2.0,
        "limit": None,
    }
    assert shown["lab"]["limit"] is None
    assert "vision" in trimtab("tenants", "ls").out
    assert trimtab("tenants", "remove", "vision").status == 0
    assert [each["name"] for each in json.loads(trimtab("tenants", "ls", "--json").out)] == ["lab"]


def test_circles_and_promises_that_cannot_be_kept_are_refused(trimtab: Trimtab) -> None:
    trimtab("tenants", "set", "lab", "--guarantee", "8")
    trimtab("tenants", "set", "vision", "--parent", "lab", "--guarantee", "6")
    for arguments, part in (
        (("lab", "--parent", "vision"), "circle"),
        (("audio", "--parent", "lab", "--guarantee", "3"), "8 of lab"),
        (("audio", "--parent", "lib"), "lib"),
        (("audio", "--guarantee", "4", "--limit", "2"), "guarantee"),
        (("audio", "--weight", "0"), "weight"),
        (("audio", "--limit", "2", "--no-limit"), "--no-limit"),
    ):
        called = trimtab("tenants", "set", *arguments)
        assert called.status == 2
        assert part in called.error
    refused = trimtab("tenants", "remove", "lab")
    assert refused.status == 2
    assert "lab" in refused.error
    assert [each["name"] for each in json.loads(trimtab("tenants", "ls", "--json").out)] == ["lab", "vision"]
