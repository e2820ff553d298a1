"""The text for tc, line by line; and that what tc would then show is what was asked for."""

import re
from ipaddress import IPv4Address, IPv4Interface
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from trimtab.fabric import Host, Tenant, VirtualFunction, WorkerDevice
from trimtab.fabric.reconcile import Changes, difference, mac_bytes
from trimtab.fabric.reconcile.flower_rules import (
    NOWHERE,
    Rules,
    changing_lines,
    preparing_lines,
    read_rules,
    removing_lines,
)

HOST = Host("h1", IPv4Address("10.255.0.1"), 65001, ())
CARD = WorkerDevice(
    "w0", IPv4Interface("10.100.0.1/24"), "02:00:0a:64:00:01", "", VirtualFunction("p1", 0, "p1_0")
)
VETH = WorkerDevice("w1", IPv4Interface("10.100.0.2/24"), "02:00:0a:64:00:02")
TENANT = Tenant("blue", 100, (VETH,))
TWO_PORTS = Tenant("blue", 100, (CARD, VETH))
FAR = bytes([10, 255, 0, 2])
FARTHER = bytes([10, 255, 0, 3])
A, B = mac_bytes("02:00:00:00:00:0a"), mac_bytes("02:00:00:00:00:0b")


def action(host: str, index: int) -> str:
    set_to = f"src_ip 10.255.0.1 dst_ip {host} id 100 dst_port 4789 nocsum"
    return f"actions add action tunnel_key set {set_to} index {index}"


def rule(how: str, handle: int, mac: str, index: int) -> str:
    place = f"dev w1-br ingress protocol all pref 4789 handle {handle}"
    actions = f"action tunnel_key index {index} action mirred index 4789"
    return f"filter {how} {place} flower skip_hw dst_mac {mac} {actions}"


def test_two_macs_of_a_host_share_its_action() -> None:
    lines, rules = changing_lines(HOST, TENANT, Rules(), Changes({A: FAR, B: FAR}))
    assert lines == [
        action("10.255.0.2", 1),
        rule("add", 1, "02:00:00:00:00:0a", 1),
        rule("add", 2, "02:00:00:00:00:0b", 1),
    ]
    assert rules.hosts == {A: FAR, B: FAR}


def test_a_mac_that_moves_is_replaced_at_once_and_the_action_nobody_needs_goes() -> None:
    _, held = changing_lines(HOST, TENANT, Rules(), Changes({A: FAR}))
    lines, _ = changing_lines(HOST, TENANT, held, Changes({A: FARTHER}))
    assert lines == [
        action("10.255.0.3", 2),
        rule("replace", 1, "02:00:00:00:00:0a", 2),
        "actions del action tunnel_key index 1",
    ]


def test_a_mac_that_is_gone_leaves_nothing() -> None:
    _, held = changing_lines(HOST, TENANT, Rules(), Changes({A: FAR}))
    lines, rules = changing_lines(HOST, TENANT, held, Changes({}, (A,)))
    assert lines == [
        "filter del dev w1-br ingress protocol all pref 4789 handle 1 flower",
        "actions del action tunnel_key index 1",
    ]
    assert rules == Rules({}, {"w1-br": {}}, {}, frozenset())


def test_a_cards_port_is_left_to_the_card_and_every_port_gets_the_rule() -> None:
    lines, _ = changing_lines(HOST, TWO_PORTS, Rules(), Changes({A: FAR}))
    assert [line.split()[3] for line in lines[1:]] == ["p1_0", "w1-br"]
    assert ["skip_sw" in line for line in lines[1:]] == [True, False]


def test_what_rules_need_first() -> None:
    assert preparing_lines(TWO_PORTS, ["w1-br"], has_redirect=False) == [
        "qdisc add dev w1-br clsact",
        "actions add action mirred egress redirect dev fvxout index 4789",
    ]
    assert preparing_lines(TWO_PORTS, [], has_redirect=True) == []


def test_all_can_be_taken_away() -> None:
    _, held = changing_lines(HOST, TWO_PORTS, Rules(), Changes({A: FAR, B: FARTHER}))
    assert removing_lines(TWO_PORTS, held, is_last=True) == [
        "filter del dev p1_0 ingress pref 4789",
        "filter del dev w1-br ingress pref 4789",
        "actions del action tunnel_key index 1",
        "actions del action tunnel_key index 2",
        "actions del action mirred index 4789",
    ]


class Tc:
    """Takes the lines as tc does, refusing what it would refuse, and shows what is there as `tc -j` does."""

    def __init__(self) -> None:
        self.actions = {
            7: {"kind": "tunnel_key", "index": 7, "key_id": 999, "src_ip": "10.255.0.1", "dst_ip": "9.9.9.9"}
        }
        self.filters = dict[tuple[str, int], tuple[str, int]]()

    def take(self, line: str) -> None:
        words = line.split()
        told = dict(pairwise(words))
        index = int(words[-1]) if words[-2] == "index" else 0
        if line.startswith("actions add"):
            assert index not in self.actions, line
            self.actions[index] = {"kind": "tunnel_key", "index": index, "key_id": int(told["id"])} | {
                name: told[name] for name in ("src_ip", "dst_ip")
            }
        elif line.startswith("actions del"):
            assert all(action != index for _, action in self.filters.values()), f"in use: {line}"
            del self.actions[index]
        else:
            place = (told["dev"], int(told["handle"]))
            assert (place in self.filters) == (words[1] != "add"), line
            if words[1] == "del":
                del self.filters[place]
                return
            action = re.search(r"tunnel_key index (\d+)", line)
            assert action is not None
            self.filters[place] = (told["dst_mac"], int(action[1]))
            assert int(action[1]) in self.actions, line

    def shown(self, ports: list[str]) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
        filters: dict[str, list[dict[str, Any]]] = {
            port: [{"pref": 4789, "kind": "flower"}] for port in ports
        }
        for (port, handle), (mac, action) in self.filters.items():
            actions = [self.actions[action], {"kind": "mirred", "to_dev": "fvxout", "index": 4789}]
            options = {"handle": handle, "keys": {"dst_mac": mac}, "actions": actions}
            filters[port].append({"pref": 4789, "kind": "flower", "options": options})
        return filters, [{"total acts": len(self.actions)}, {"actions": list(self.actions.values())}]


macs = some.integers(0, 5).map(lambda number: bytes([2, 0, 0, 0, 0, number]))
tables = some.dictionaries(macs, some.integers(1, 3).map(lambda number: bytes([10, 255, 0, number])))
harms = some.lists(some.integers(0, 20), max_size=3)


@settings(deadline=None, max_examples=40)
@given(some.lists(some.tuples(tables, harms), max_size=5))
def test_after_any_changes_and_harm_tc_shows_what_was_asked_for(steps: list[tuple[Any, list[int]]]) -> None:
    tc, ports = Tc(), [device.port for device in TWO_PORTS.devices]
    for desired, harm in steps:
        held = read_rules(HOST, TWO_PORTS, *tc.shown(ports))
        lines, expected = changing_lines(HOST, TWO_PORTS, held, difference(desired, held.hosts))
        for line in lines:
            tc.take(line)
        found = read_rules(HOST, TWO_PORTS, *tc.shown(ports))
        assert found == expected
        assert found.hosts == desired
        assert set(found.actions) == set(desired.values())
        assert found.taken == {7}
        for number in harm:  # somebody deletes rules
            if tc.filters:
                del tc.filters[list(tc.filters)[number % len(tc.filters)]]


def test_a_rule_that_is_not_the_same_everywhere_is_no_rule() -> None:
    tc = Tc()
    for line in changing_lines(HOST, TWO_PORTS, Rules(), Changes({A: FAR}))[0]:
        tc.take(line)
    del tc.filters["p1_0", 1]
    assert read_rules(HOST, TWO_PORTS, *tc.shown(["p1_0", "w1-br"])).hosts == {A: NOWHERE}
