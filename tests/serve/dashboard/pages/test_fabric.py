"""A host's fabric as rows and as a picture."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from dashboard_house import faults

from trimtab.fabric import Sessions, Status, plain_status
from trimtab.fabric.agent import write_status
from trimtab.fabric.failover.keeper import Failover, UplinkNow
from trimtab.fabric.journal import RUN
from trimtab.serve.dashboard.pages.fabric import (
    FAILOVERS,
    UPLINKS,
    failover_rows,
    figures,
    session_rows,
    topology,
)
from trimtab.serve.dashboard.widgets import table_rows


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
    result = dict(figures(host))
    assert result["uplinks up"] == "1 of 2"
    assert result["slowest failover"] == "8 ms"
    assert [row["state"] for row in table_rows(UPLINKS, host["uplinks"])] == ["up", "dead"]
    assert [row["took#"] for row in table_rows(FAILOVERS, failover_rows(host))] == [0.008, 0.004]
    assert {row["kind"] for row in session_rows(host)} == {"BFD", "BGP"}


def test_a_picture_joins_the_host_to_uplinks_and_uplinks_to_where_they_lead(host: dict[str, Any]) -> None:
    *lines, points = topology(host)["data"]
    assert points["text"] == ["h1", "eth0 (up)", "eth1 (dead)", "10.0.0.2", "10.0.0.9"]
    assert sum(len(line["x"]) // 3 for line in lines) == 4


def test_a_host_without_anything_is_drawn_too() -> None:
    status = plain_status(Status("h1", 10.0, (), {}, {}, ()), Sessions())
    assert topology({**status, "running": False})["data"][-1]["text"] == ["h1"]


@pytest.fixture
def kept() -> Iterator[Path]:
    """Where an agent of this machine keeps what it sees; gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root, to write below {RUN}")
    folder = RUN / f"page-{os.getpid()}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def result(folder: Path, state: Literal["up", "dead"], failovers: int) -> None:
    """As an agent writes it: two uplinks, one of them in some state, and so many failovers."""
    now = time.time()
    uplinks = (
        UplinkNow("eth0", "leaf-a", "up", now, None, 0, True),
        UplinkNow("eth1", "leaf-b", state, now, None, failovers, state == "up"),
    )
    observed = tuple(Failover(now - n, "eth1", "leaf-b", "bfd", 0.003, 1) for n in range(failovers))
    write_status(Status(folder.name, now, uplinks, {"10.0.0.2": ("eth0",)}, {}, observed), folder)


def test_a_host_is_drawn_and_followed_and_long_tables_get_pages(house: Any, kept: Path) -> None:
    result(kept, "up", 1)
    with house.visitor() as page:
        page.goto(f"{house.url}/fabric")
        page.get_by_role("heading", name=f"Host {kept.name}", exact=True).wait_for()
        uplink = page.get_by_role("row", name="eth1 leaf-b").first
        uplink.locator("[data-state=up]").wait_for()
        assert page.get_by_role("button", name="Next page").count() == 0
        result(kept, "dead", 30)
        uplink.locator("[data-state=dead]").wait_for()
        page.get_by_role("button", name="Next page").first.wait_for()
        page.wait_for_function("document.querySelector('.js-plotly-plot .main-svg') !== null")
        assert faults(page) == []
    assert house.problems == []
