"""Outages of the network: packets every millisecond on several flows, and the longest gap in each."""

import json
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from trimtab.core import TrimtabError
from trimtab.fabric.lab import probe_process
from trimtab.fabric.lab.faults import Fault
from trimtab.fabric.lab.lab import Lab

_FIRST_PORT = 7000
_STRAGGLERS = 0.2  # s for packets that are under way, and for the receiver to write them down
_PATIENCE = 5.0  # s for the first packet


@dataclass(frozen=True, slots=True)
class Arrival:
    """A packet that arrived: its flow and number, when it was sent and received (monotonic seconds)."""

    flow: int
    number: int
    sent: float
    received: float


@dataclass(frozen=True, slots=True)
class Outage:
    """Longest gap of each flow in seconds, number of lost packets, and the longest delay in seconds."""

    flows: tuple[float, ...]
    lost: int
    delay: float

    @property
    def worst(self) -> float:
        return max(self.flows)

    @property
    def flows_hit(self) -> int:
        return sum(seconds > 0 for seconds in self.flows)


def outage_of(arrivals: Iterable[Arrival], flows: int, begin: float, end: float, period: float) -> Outage:
    """The outage between two times.

    A gap is between two packets that arrived with others missing between them, by when both were sent and
    less the usual period; so a sender or receiver that waited for a core is not an outage.
    """
    by_flow: dict[int, dict[int, Arrival]] = {flow: {} for flow in range(flows)}
    for arrival in arrivals:
        by_flow[arrival.flow][arrival.number] = arrival
    ordered = [[packets[number] for number in sorted(packets)] for packets in by_flow.values()]
    gaps = [_longest_gap(packets, begin, end, period) for packets in ordered]
    delays = [
        packet.received - packet.sent
        for packets in ordered
        for packet in packets
        if begin <= packet.sent <= end
    ]
    return Outage(
        tuple(gap for gap, _ in gaps), sum(lost for _, lost in gaps), max(delays, default=end - begin)
    )


def _longest_gap(packets: Sequence[Arrival], begin: float, end: float, period: float) -> tuple[float, int]:
    """The longest gap and the number of packets lost."""
    longest, lost = 0.0, 0
    for one, other in pairwise(packets):
        within = min(other.sent, end) - max(one.sent, begin)
        missing = other.number - one.number - 1
        if missing and within > 0:
            longest = max(longest, within - period)
            lost += round(missing * within / (other.sent - one.sent))
    times = [begin, *(packet.sent for packet in (*packets[:1], *packets[-1:])), end]
    for one_time, other_time in ((times[0], times[1]), (times[-2], times[-1])):
        if other_time - one_time > _STRAGGLERS / 2:  # no packet at the beginning, or at the end
            longest = max(longest, other_time - one_time - period)
            lost += round((other_time - one_time) / period)
    return longest, lost


class Probes:
    """Packets from one host to another, between worker devices or the given addresses.

    Use as a context, on a lab that is ready; `measure` a fault, or any interval with `outage`.
    """

    def __init__(
        self,
        lab: Lab,
        source: int = 0,
        target: int = 1,
        flows: int = 8,
        rate: float = 1000.0,
        addresses: tuple[str, str] | None = None,
    ) -> None:
        self._lab = lab
        self._ends = (source, target)
        self._flows = flows
        self._period = 1 / rate
        self._addresses = addresses or (_worker_address(lab, source), _worker_address(lab, target))
        self._file = lab.folder / f"probes-{source}-{target}"
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        self._lab.folder.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        source, target = self._addresses
        try:
            receiver = self._run(self._ends[1], "receive", target, str(_FIRST_PORT), str(self._file))
            if receiver.stdout is None or not receiver.stdout.readline():
                raise TrimtabError(f"no probes can be received at {target}")
            port, flows, period = str(_FIRST_PORT), str(self._flows), str(self._period)
            self._run(self._ends[0], "send", source, target, port, flows, period)
            give_up = time.monotonic() + _PATIENCE
            while len({arrival.flow for arrival in self._arrivals()}) < self._flows:
                if time.monotonic() > give_up:
                    raise TrimtabError(f"probes from {' to '.join(self._addresses)} do not arrive")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that receive and send."""
        return tuple(process.pid for process in self._processes)

    @property
    def rate(self) -> float:
        """Packets a second, of all flows."""
        return self._flows / self._period

    def outage(self, begin: float, end: float) -> Outage:
        """The outage between two monotonic times; waits for packets in flight."""
        time.sleep(max(0.0, end + _STRAGGLERS - time.monotonic()))
        return outage_of(self._arrivals(begin), self._flows, begin, end, self._period)

    def measure(self, fault: Fault, lasting: float = 1.0, before: float = 0.2) -> Outage:
        """The outage that a fault causes while it lasts; it is repaired afterwards."""
        begin = time.monotonic()
        time.sleep(before)
        with fault:
            time.sleep(lasting)
            end = time.monotonic()
        return self.outage(begin, end)

    def _run(self, host: int, *words: str) -> "subprocess.Popen[Any]":
        command = [sys.executable, "-I", probe_process.__file__, *words]
        process = self._lab.run(host, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._processes.append(process)
        return process

    def _arrivals(self, begin: float = 0.0) -> list[Arrival]:
        """Packets that arrived since then, or shortly before."""
        content, size = self._file.read_bytes(), probe_process.RECORD.size
        number = len(content) // size

        def received(place: int) -> float:
            return float(probe_process.RECORD.unpack_from(content, place * size)[3])

        first = bisect_left(range(number), begin - _STRAGGLERS, key=received)
        records = memoryview(content)[first * size : number * size]
        return [Arrival(*fields) for fields in probe_process.RECORD.iter_unpack(records)]


def busiest_uplink(lab: Lab, host: int, during: float = 0.1) -> str:
    """The uplink over which a host sends the most right now."""
    sent = traffic(lab, host, during)
    return max(sent, key=lambda device: sent[device])


def traffic(lab: Lab, host: int, during: float = 0.1) -> dict[str, float]:
    """Packets per second that a host sends by each uplink right now."""
    begin, first = time.monotonic(), _sent(lab, host)
    time.sleep(during)
    end, then = time.monotonic(), _sent(lab, host)
    return {device: (then[device] - first[device]) / (end - begin) for device in first}


def _sent(lab: Lab, host: int) -> dict[str, int]:
    """Packets sent by each uplink so far."""
    words = ["ip", "-n", lab.hosts[host].namespace, "-s", "-j", "link", "show"]
    links = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    uplinks = [uplink.device for uplink in lab.hosts[host].host.uplinks]
    return {
        link["ifname"]: int(link["stats64"]["tx"]["packets"]) for link in links if link["ifname"] in uplinks
    }


def _worker_address(lab: Lab, host: int) -> str:
    return str(lab.hosts[host].host.tenants[0].devices[0].address.ip)
