"""A host's fabric as rows and as a picture."""

from typing import Any

import pytest

from trimtab.fabric import Sessions, Status, plain_status
from trimtab.serve.dashboard.pages.fabric import failover_rows, figures, session_rows, uplink_rows
from trimtab.serve.dashboard.pages.fabric_picture import topology


@pytest.fixture
def host() -> dict[str, Any]:
    status = Status("h1", 10.0, (), {"10.0.0.2": ("eth0", "eth1")}, {"10.0.0.9": 5.0}, ())
    uplinks = [
        {
            "device": name,
            "peer": f"s{i}",
            "state": state,
            "since": 1.0,
            "held_until": None,
            "failures": i,
            "echo": None,
        }
        for i, (name, state) in enumerate((("eth0", "up"), ("eth1", "dead")))
    ]
    failovers = [
        {"time": when, "uplink": "eth1", "peer": "s1", "cause": "bfd", "seconds": 0.004 * when, "paths": 1}
        for when in (1.0, 2.0)
    ]
    plain = plain_status(status, Sessions(bfd={"s0": "up"}, bgp={"s1": "Idle"}))
    return {**plain, "uplinks": uplinks, "failovers": failovers, "running": True}


def test_a_host_is_told_in_numbers_and_rows(host: dict[str, Any]) -> None:
    told = dict(figures(host))
    assert told["uplinks up"] == "1 of 2"
    assert told["the slowest"] == "8 ms"
    assert [row["state"] for row in uplink_rows(host)] == ["up", "dead"]
    assert [row["seconds#"] for row in failover_rows(host)] == [0.008, 0.004]
    assert {row["kind"] for row in session_rows(host)} == {"BFD", "BGP"}


def test_a_picture_joins_the_host_to_uplinks_and_uplinks_to_where_they_lead(host: dict[str, Any]) -> None:
    *lines, points = topology(host)["data"]
    assert points["text"] == ["h1", "eth0 (up)", "eth1 (dead)", "10.0.0.2", "10.0.0.9"]
    assert sum(len(line["x"]) // 3 for line in lines) == 4


def test_a_host_without_anything_is_drawn_too() -> None:
    status = plain_status(Status("h1", 10.0, (), {}, {}, ()), Sessions())
    assert topology({**status, "running": False})["data"][-1]["text"] == ["h1"]
