"""Probes that an uplink's switch sends straight back: to the switch's MAC, but to the host's own address.

The switch forwards them like any other packet, so no program there takes part, and both directions are
tried (RFC 5880 calls this the echo function). The switch's MAC is that of the BFD packets it sends.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from trimtab.fabric.topology import Echo, Uplink

PORT = 4797
"""Not BFD's own port for echoes: there the routing daemons at both ends would read every probe too."""

_BFD_PORT = 3784
_IPV4, _UDP = 0x0800, 17
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_PRIORITY = 7  # of the host's own queues: before the data
_CLASS = 0xC0  # CS6, network control: before the data in the switch's queues too
_HOPS = 255
_UNFRAGMENTED = 0x4000  # the IP flag DF
_ETHERNET = struct.Struct("!6s6sH")  # to, from, type
_IP = struct.Struct("!BBHHHBBH4s4s")  # version, class, length, id, part, hops, protocol, checksum, from, to
_PORTS = struct.Struct("!HHHH")  # from, to, length, no checksum
_CONTENT = struct.Struct("!8s8sQ")  # mark, session, number
_NUMBER = struct.Struct("!Q")
_MARK = b"trimtab\0"
_SENDER = slice(26, 30)  # of a frame: the IP address it is from
_IP_AT = _ETHERNET.size
_CONTENT_AT = _IP_AT + _IP.size + _PORTS.size
_NUMBER_AT = _CONTENT_AT + len(_MARK) + 8
_LENGTH = _CONTENT_AT + _CONTENT.size
_MOST = 256  # bytes of a packet that are read

_LATE = 0.5  # of an interval, after which a tick is late
_LEAST = 0.25  # of an interval, that a probe has to come back before the next tick

EchoState = Literal["unknown", "well", "lost"]
"""Whether probes come back: not known yet; they do; they did and do not any more."""


class EchoSocket:
    """Sends and receives probes of one uplink, in whose namespace it is made. Never waits."""

    def __init__(self, uplink: Uplink, session: bytes) -> None:
        self._device = uplink.device
        own, peer = uplink.address.ip.packed, uplink.peer.packed
        self._own = own
        self._frame = bytearray(_ETHERNET.pack(bytes(6), bytes(6), _IPV4) + _packet(own, session))
        self._mark = bytes(self._frame[_CONTENT_AT:_NUMBER_AT])
        self._switch = b""  # its MAC; empty until it is known
        self._read = bytearray(_MOST)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _PRIORITY)
            lines = _filter(own, peer)
            program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
            self._socket.setsockopt(
                socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(lines), ctypes.addressof(program))
            )
        except BaseException:
            self._socket.close()
            raise
        self.plug()

    def plug(self) -> None:
        """Listen at the device of that name, which may be a new one, or have a new MAC."""
        try:
            self._socket.bind((self._device, _IPV4))
            self._frame[6:12] = self._socket.getsockname()[4]
        except OSError:
            self._switch = b""

    def send(self, number: int) -> None:
        """Send a probe; one that cannot be sent counts as one that does not come back."""
        if self._switch:
            _NUMBER.pack_into(self._frame, _NUMBER_AT, number)
            with contextlib.suppress(OSError):
                self._socket.send(self._frame)

    def back(self) -> list[int]:
        """Numbers of probes that came back since the last call."""
        numbers, read = list[int](), self._read
        try:
            while True:
                length = self._socket.recv_into(read)
                if read[_SENDER] != self._own:
                    if read[6:12] != self._switch:
                        self._switch = self._frame[0:6] = bytes(read[6:12])
                elif length >= _LENGTH and read[_CONTENT_AT:_NUMBER_AT] == self._mark:
                    numbers.append(_NUMBER.unpack_from(read, _NUMBER_AT)[0])
        except OSError:  # nothing more, or the device went down, which is reported once
            return numbers

    def close(self) -> None:
        self._socket.close()


def _packet(own: bytes, session: bytes) -> bytes:
    """A probe from an address to itself."""
    content = _CONTENT.pack(_MARK, session, 0)
    length = _PORTS.size + len(content)
    fields = (0x45, _CLASS, _IP.size + length, 0, _UNFRAGMENTED, _HOPS, _UDP)
    checksum = _checksum(_IP.pack(*fields, 0, own, own))
    return _IP.pack(*fields, checksum, own, own) + _PORTS.pack(PORT, PORT, length, 0) + content


def _checksum(header: bytes) -> int:
    """IP's checksum: the complement of the ones' complement sum of all 16-bit words."""
    total = sum(int(word) for (word,) in struct.iter_unpack("!H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _filter(own: bytes, peer: bytes) -> list[tuple[int, int, int, int]]:
    """Classic BPF that accepts unfragmented UDP packets of two kinds, before anything is copied.

    They are from our address to itself at our port, or from the peer to BFD's. A line is an instruction, how
    many lines to skip if it holds and if not, and an operand.
    """
    load_byte, load_half, load_word, load_port, find_ports = 0x30, 0x28, 0x20, 0x48, 0xB1
    equal, any_of, take = 0x15, 0x45, 0x06
    mine, theirs = (int.from_bytes(address, "big") for address in (own, peer))
    return [
        (load_byte, 0, 0, 23),
        (equal, 0, 13, _UDP),
        (load_half, 0, 0, 20),
        (any_of, 11, 0, 0x1FFF),  # a later fragment of a packet
        (find_ports, 0, 0, 14),
        (load_word, 0, 0, 26),
        (equal, 0, 4, mine),
        (load_word, 0, 0, 30),
        (equal, 0, 6, mine),
        (load_port, 0, 0, 16),
        (equal, 3, 4, PORT),
        (equal, 0, 3, theirs),
        (load_port, 0, 0, 16),
        (equal, 0, 1, _BFD_PORT),
        (take, 0, 0, _MOST),
        (take, 0, 0, 0),
    ]


@dataclass(slots=True)
class _Probed:
    state: EchoState = "unknown"
    newest: int = 0  # the number of the last probe that came back
    back: int = 0  # how many came back so far
    row: int = 0  # how many one after the other, without a gap
    answered: bool = False  # since the last tick
    due: int = 0  # probes that had been due by the clock when the last came back
    others: dict[str, int] = field(default_factory=dict)  # how many had come back on other uplinks then


class Echoes:
    """Judges uplinks by the probes that come back, numbered from 1. Times are monotonic seconds."""

    def __init__(self, devices: Iterable[str], interval: float, multiplier: int, now: float) -> None:
        self._uplinks = {device: _Probed() for device in devices}
        self._interval, self._multiplier = interval, multiplier
        self._due = 0  # probes that should be back by the clock
        self.number = 0  # of the latest probe
        self.next_tick = now
        self.late = 0  # ticks that came late

    def came(self, device: str, number: int) -> None:
        """Count a probe that is back, unless it is a copy or later ones came first."""
        uplink = self._uplinks[device]
        if uplink.newest < number <= self.number:
            uplink.row = uplink.row + 1 if number == uplink.newest + 1 else 1
            uplink.newest = number
            uplink.back += 1
            uplink.answered = True

    def tick(self, now: float) -> list[tuple[str, EchoState]]:
        """Devices whose state has changed. Call after `came` for all that is back, before the next probe."""
        if now - self.next_tick <= _LATE * self._interval:
            self._due = self.number
            self.next_tick += self._interval
        else:
            self.late += 1
            behind = (now - self.next_tick) / self._interval
            self.next_tick += ceil(behind + _LEAST) * self._interval
        self.number += 1
        changed = list[tuple[str, EchoState]]()
        for device, uplink in self._uplinks.items():
            before = uplink.state
            if uplink.answered:
                uplink.answered = False
                uplink.due = self._due
                uplink.others = {name: other.back for name, other in self._uplinks.items() if name != device}
                if uplink.row >= self._multiplier:
                    uplink.state = "well"
            elif before == "well" and self._missed(device, uplink) >= self._multiplier:
                uplink.state, uplink.row = "lost", 0
            if uplink.state != before:
                changed.append((device, uplink.state))
        return changed

    def forget(self, device: str) -> None:
        """Reset an uplink that is down for another reason: later, another switch may be there."""
        self._uplinks[device].state = "unknown"
        self._uplinks[device].row = 0

    def comes_back(self, device: str) -> bool | None:
        """Whether probes come back there at the moment; None if none did since the uplink is up."""
        uplink = self._uplinks[device]
        recent = self.number - uplink.newest <= self._multiplier
        return None if uplink.state == "unknown" else uplink.state == "well" and recent

    def _missed(self, device: str, uplink: _Probed) -> int:
        """Probes that should have come back here since one did: as many as came back elsewhere."""
        others = [
            other.back - uplink.others[name]
            for name, other in self._uplinks.items()
            if name != device and other.back
        ]
        return max(others, default=self._due - uplink.due)


class EchoWatch(Echoes):
    """Sends probes on all uplinks and judges them; made inside the host's namespace."""

    def __init__(self, uplinks: Sequence[Uplink], timing: Echo, now: float) -> None:
        super().__init__((uplink.device for uplink in uplinks), timing.interval, timing.multiplier, now)
        session = os.urandom(8)  # probes of an earlier agent do not count
        self._sockets = dict[str, EchoSocket]()
        try:
            for uplink in uplinks:
                self._sockets[uplink.device] = EchoSocket(uplink, session)
        except BaseException:
            self.close()
            raise

    def tick(self, now: float) -> list[tuple[str, EchoState]]:
        """Read, judge, send; the uplinks whose state has changed."""
        for device, echo_socket in self._sockets.items():
            for number in echo_socket.back():
                self.came(device, number)
        changed = super().tick(now)
        for echo_socket in self._sockets.values():
            echo_socket.send(self.number)
        return changed

    def plug(self, device: str) -> None:
        """The device is there, or there again."""
        self._sockets[device].plug()

    def close(self) -> None:
        for echo_socket in self._sockets.values():
            echo_socket.close()
