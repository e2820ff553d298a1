"""The text for tc, line by line; and that what tc would then show is what was asked for."""

import re
from ipaddress import IPv4Address, IPv4Interface
from itertools import pairwise
from typing import Any

from hypothesis import given, settings, strategies as some

from trimtab.fabric import FabricHost, TenantNetwork, VirtualFunction, WorkerDevice
from trimtab.fabric.reconcile.flower_plane import (
    NOWHERE,
    Numbers,
    Rules,
    changing_lines,
    read_numbers,
    read_rules,
)
from trimtab.fabric.reconcile.planes import Changes, difference, mac_bytes

HOST = FabricHost("h1", IPv4Address("10.255.0.1"), 65001, ())
CARD = WorkerDevice(
    "w0", IPv4Interface("10.100.0.1/24"), "02:00:0a:64:00:01", "", VirtualFunction("p1", 0, "p1_0")
)
VETH = WorkerDevice("w1", IPv4Interface("10.100.0.2/24"), "02:00:0a:64:00:02")
TENANT = TenantNetwork("blue", 100, (VETH,))
TWO_PORTS = TenantNetwork("blue", 100, (CARD, VETH))
FAR = bytes([10, 255, 0, 2])
FARTHER = bytes([10, 255, 0, 3])
A, B = mac_bytes("02:00:00:00:00:0a"), mac_bytes("02:00:00:00:00:0b")


NOTHING = Rules(handles={"w1-br": {}})
NOTHING_TWICE = Rules(handles={"p1_0": {}, "w1-br": {}})


def rule(how: str, handle: int, mac: str, host: str, index: int) -> str:
    place = f"dev w1-br ingress protocol all pref 4789 handle {handle}"
    tunnel = f"tunnel_key set src_ip 10.255.0.1 dst_ip {host} id 100 dst_port 4789 nocsum index {index}"
    out = "mirred egress redirect dev fvxout index 2"
    return f"filter {how} {place} flower skip_hw dst_mac {mac} action {tunnel} action {out}"


def test_two_macs_of_a_host_share_its_action() -> None:
    lines, rules = changing_lines(HOST, TENANT, NOTHING, Changes({A: FAR, B: FAR}), Numbers())
    assert lines == [
        rule("add", 1, "02:00:00:00:00:0a", "10.255.0.2", 1),
        rule("add", 2, "02:00:00:00:00:0b", "10.255.0.2", 1),
    ]
    assert rules == Rules({A: FAR, B: FAR}, {"w1-br": {A: 1, B: 2}}, {("skip_hw", FAR): 1})


def test_a_mac_that_moves_is_replaced_at_once_with_another_action() -> None:
    _, held = changing_lines(HOST, TENANT, NOTHING, Changes({A: FAR}), Numbers())
    there = Numbers({1: ("skip_hw", FAR)}, frozenset({1}))
    lines, rules = changing_lines(HOST, TENANT, held, Changes({A: FARTHER}), there)
    assert lines == [rule("replace", 1, "02:00:00:00:00:0a", "10.255.0.3", 2)]
    assert rules.actions == {("skip_hw", FARTHER): 2}


def test_what_is_gone_goes_before_anything_comes() -> None:
    _, held = changing_lines(HOST, TENANT, NOTHING, Changes({A: FAR}), Numbers())
    there = Numbers({1: ("skip_hw", FAR)}, frozenset({1}))
    lines, rules = changing_lines(HOST, TENANT, held, Changes({B: FAR}, (A,)), there)
    assert lines == [
        "filter del dev w1-br ingress protocol all pref 4789 handle 1 flower",
        rule("add", 1, "02:00:00:00:00:0b", "10.255.0.2", 1),
    ]
    assert rules == Rules({B: FAR}, {"w1-br": {B: 1}}, {("skip_hw", FAR): 1})


def test_a_number_that_has_become_somebody_elses_is_not_used_again() -> None:
    _, held = changing_lines(HOST, TENANT, NOTHING, Changes({A: FAR}), Numbers())
    lines, _ = changing_lines(HOST, TENANT, held, Changes({B: FAR}), Numbers({}, frozenset({1})))
    assert lines == [rule("add", 2, "02:00:00:00:00:0b", "10.255.0.2", 2)]


def test_a_cards_port_is_left_to_the_card_with_actions_of_its_own() -> None:
    lines, _ = changing_lines(HOST, TWO_PORTS, NOTHING_TWICE, Changes({A: FAR}), Numbers())
    assert [line.split()[3] for line in lines] == ["p1_0", "w1-br"]
    assert ["skip_sw" in line for line in lines] == [True, False]
    assert [re.findall(r"index (\d+)", line) for line in lines] == [["1", "1"], ["2", "2"]]


def test_a_port_that_is_not_there_gets_no_rule() -> None:
    lines, _ = changing_lines(HOST, TWO_PORTS, NOTHING, Changes({A: FAR}), Numbers())
    assert [line.split()[3] for line in lines] == ["w1-br"]


class Tc:
    """Takes the lines as the kernel does, refusing what it would refuse, and shows what `tc -j` does.

    A rule that names an action by the index of one that is there joins that one, whatever else it says.
    """

    def __init__(self) -> None:
        self.others = [
            {"kind": "tunnel_key", "index": 2, "key_id": 999, "src_ip": "10.255.0.1", "dst_ip": "9.9.9.9"}
        ]
        self.filters = dict[tuple[str, int], dict[str, Any]]()

    def take(self, line: str) -> None:
        words = line.split(" action ")[0].split()
        options = dict(pairwise(words))
        place = (options["dev"], int(options["handle"]))
        assert (place in self.filters) == (words[1] != "add"), line
        if words[1] == "del":
            del self.filters[place]
            return
        kind = "skip_sw" if "skip_sw" in words else "skip_hw"
        tunnel, redirect = line.split(" action ")[1:]
        actions = [self._action(tunnel, kind), self._action(redirect, kind)]
        self.filters[place] = {"keys": {"dst_mac": options["dst_mac"]}, kind: True, "actions": actions}

    def _action(self, line: str, kind: str) -> dict[str, Any]:
        options = dict(pairwise(line.split()))
        name, index = line.split()[0], int(options["index"])
        for each in self.actions(name):
            if each["index"] == index:
                assert each.get(kind), f"mismatch between action and filter offload flags: {line}"
                return each
        made = {"kind": name, "index": index, "bind": 1, kind: True}
        if name == "mirred":
            return {**made, "to_dev": options["dev"]}
        numbers = {"key_id": int(options["id"]), "dst_port": int(options["dst_port"])}
        return {**made, **numbers, "src_ip": options["src_ip"], "dst_ip": options["dst_ip"]}

    def actions(self, name: str) -> list[dict[str, Any]]:
        """Those that rules use, and somebody else's."""
        used = {
            each["index"]: each
            for rule in self.filters.values()
            for each in rule["actions"]
            if each["kind"] == name
        }
        return [*used.values(), *(each for each in self.others if each["kind"] == name)]

    def shown(self, ports: list[str]) -> dict[str, list[dict[str, Any]]]:
        """As for one priority, which is then not said."""
        filters: dict[str, list[dict[str, Any]]] = {port: [{"kind": "flower", "chain": 0}] for port in ports}
        for (port, handle), options in self.filters.items():
            filters[port].append({"kind": "flower", "chain": 0, "options": {"handle": handle, **options}})
        return filters


macs = some.integers(0, 5).map(lambda number: bytes([2, 0, 0, 0, 0, number]))
tables = some.dictionaries(macs, some.integers(1, 3).map(lambda number: bytes([10, 255, 0, number])))
harms = some.lists(some.integers(0, 20), max_size=3)


@settings(deadline=None, max_examples=40)
@given(some.lists(some.tuples(tables, harms), max_size=5))
def test_after_any_changes_and_harm_tc_shows_what_was_asked_for(steps: list[tuple[Any, list[int]]]) -> None:
    tc, ports = Tc(), [device.port for device in TWO_PORTS.devices]
    for desired, harm in steps:
        held = read_rules(HOST, TWO_PORTS, tc.shown(ports))
        numbers = read_numbers(HOST, TWO_PORTS, tc.actions("tunnel_key"), tc.actions("mirred"))
        changes = difference(desired, held.hosts)
        lines, expected = changing_lines(HOST, TWO_PORTS, held, changes, numbers)
        for line in lines:
            tc.take(line)
        found = read_rules(HOST, TWO_PORTS, tc.shown(ports))
        assert found.hosts == desired == expected.hosts
        assert found.handles == expected.handles
        ends = {(kind, at) for at in desired.values() for kind in ("skip_sw", "skip_hw")}
        assert set(found.actions) == ends
        assert len(tc.actions("tunnel_key")) == len(ends) + 1
        assert len(tc.actions("mirred")) == (2 if desired else 0)
        for number in harm:  # somebody deletes rules
            if tc.filters:
                del tc.filters[list(tc.filters)[number % len(tc.filters)]]


def test_a_rule_that_is_not_the_same_everywhere_is_no_rule() -> None:
    tc = Tc()
    for line in changing_lines(HOST, TWO_PORTS, NOTHING_TWICE, Changes({A: FAR}), Numbers())[0]:
        tc.take(line.replace("index 2", "index 5"))  # 2 is somebody else's
    assert read_rules(HOST, TWO_PORTS, tc.shown(["p1_0", "w1-br"])).hosts == {A: FAR}
    del tc.filters["p1_0", 1]
    assert read_rules(HOST, TWO_PORTS, tc.shown(["p1_0", "w1-br"])).hosts == {A: NOWHERE}


def test_a_rule_whose_way_out_is_gone_is_no_rule_and_gets_another() -> None:
    tc = Tc()
    tc.others = [{"kind": "mirred", "index": 2, "skip_hw": True, "bind": 1, "to_dev": "*"}]
    numbers = read_numbers(HOST, TENANT, tc.actions("tunnel_key"), tc.actions("mirred"))
    assert numbers.redirects == {"skip_sw": 1, "skip_hw": 3}
    tc.others = []
    tc.take(changing_lines(HOST, TENANT, NOTHING, Changes({A: FAR}), Numbers())[0][0])
    tc.filters["w1-br", 1]["actions"][1]["to_dev"] = "*"
    assert read_rules(HOST, TENANT, tc.shown(["w1-br"])).hosts == {A: NOWHERE}
