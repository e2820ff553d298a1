"""What `trimtab fabric status` shows, as values, on file and for Prometheus."""

import json
import re
from pathlib import Path

import pytest

from trimtab.core import NotFoundError
from trimtab.fabric.agent import (
    STATUS,
    Sessions,
    Status,
    exposition,
    plain_status,
    read_status,
    write_status,
)
from trimtab.fabric.failover.keeper import Failover, UplinkNow

SHOWN = Status(
    "node-1",
    1000.0,
    (
        UplinkNow("p1", "172.16.1.3", "held", 990.0, 1001.5, 2, True),
        UplinkNow("p2", "172.16.2.3", "up", None, None, 0),
    ),
    {"10.255.0.2/32": ("p2",)},
    {"10.255.0.3/32": 500.0},
    (Failover(980.0, "p1", "172.16.1.3", "echo", 0.0002, 1),),
    ("zebra's routes cannot be read",),
    3,
    17,
    2,
    0.0005,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_status(SHOWN, tmp_path)
    assert read_status("node-1", tmp_path) == SHOWN


@pytest.mark.parametrize("content", ["", "[]", '{"host": "x"}', '{"host": "x", "time": "y"}'])
def test_a_file_that_is_no_status_is_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / STATUS).write_text(content)
    with pytest.raises(NotFoundError, match=STATUS):
        read_status("node-1", tmp_path)


def test_without_an_agent_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="node-1"):
        read_status("node-1", tmp_path)


def test_plain_values_hold_everything() -> None:
    plain = json.loads(json.dumps(plain_status(SHOWN, Sessions({"172.16.1.3": "up"}))))
    assert plain["uplinks"][0]["held_until"] == 1001.5
    assert plain["gone"] == {"10.255.0.3/32": 500.0}
    assert plain["failovers"][0]["seconds"] == 0.0002
    assert plain["sessions"]["bfd"] == {"172.16.1.3": "up"}


def test_metrics_are_what_prometheus_reads() -> None:
    lines = exposition(SHOWN).splitlines()
    assert 'trimtab_fabric_uplink_up{host="node-1",uplink="p1"} 0.0' in lines
    assert 'trimtab_fabric_uplink_up{host="node-1",uplink="p2"} 1.0' in lines
    assert 'trimtab_fabric_uplink_echo{host="node-1",uplink="p1"} 1.0' in lines
    assert not any(line.startswith('trimtab_fabric_uplink_echo{host="node-1",uplink="p2"') for line in lines)
    assert 'trimtab_fabric_late_ticks_total{host="node-1"} 17.0' in lines
    assert 'trimtab_fabric_destinations_gone{host="node-1"} 1.0' in lines
    assert 'trimtab_fabric_failover_worst_seconds{host="node-1"} 0.0002' in lines
    assert 'trimtab_fabric_failovers_total{host="node-1"} 2.0' in lines
    assert 'trimtab_fabric_failover_seconds_total{host="node-1"} 0.0005' in lines
    assert 'trimtab_fabric_problems{host="node-1"} 1.0' in lines
    assert 'trimtab_fabric_status_time_seconds{host="node-1"} 1000.0' in lines
    assert all(line.startswith(("#", "trimtab_fabric_")) for line in lines)


def test_the_runbook_names_every_metric_and_no_other() -> None:
    runbook = Path(__file__).resolve().parents[2] / "docs" / "guide" / "fabric.md"
    named = set(re.findall(r"`(trimtab_fabric_\w+)`", runbook.read_text()))
    assert named == set(re.findall(r"^# TYPE (\w+)", exposition(SHOWN), re.MULTILINE))
