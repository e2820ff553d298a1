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
_WHOLE = 0x4000  # not to be taken apart
_ETHERNET = struct.Struct("!6s6sH")  # to, from, type
_IP = struct.Struct("!BBHHHBBH4s4s")  # version, class, length, id, part, hops, protocol, checksum, from, to
_PORTS = struct.Struct("!HHHH")  # from, to, length, no checksum
_CONTENT = struct.Struct("!8s8sQ")  # whose it is, session, number
_NUMBER = struct.Struct("!Q")
_MARK = b"trimtab\0"
_SENDER = slice(26, 30)  # of a frame: the IP address it is from
_IP_AT = _ETHERNET.size
_CONTENT_AT = _IP_AT + _IP.size + _PORTS.size
_NUMBER_AT = _CONTENT_AT + len(_MARK) + 8
_LENGTH = _CONTENT_AT + _CONTENT.size
_MOST = 256  # bytes of a packet that are read


class EchoSocket:
    """Of one uplink, to be made inside its namespace. Never waits; a device that is not there is silence."""

    def __init__(self, uplink: Uplink, session: bytes) -> None:
        self._device = uplink.device
        own, peer = uplink.address.ip.packed, uplink.peer.packed
        self._own = own
        self._frame = bytearray(_ETHERNET.pack(bytes(6), bytes(6), _IPV4) + _packet(own, session))
        self._mark = bytes(self._frame[_CONTENT_AT:_NUMBER_AT])
        self._switch = b""  # its MAC; "" as long as it is not known
        self._read = bytearray(_MOST)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _PRIORITY)
            _attach(self._socket, _filter(own, peer))
        except BaseException:
            self._socket.close()
            raise
        self.plug()

    def plug(self) -> None:
        """Listen at the device of that name, which may be another one than before, or have another MAC."""
        try:
            self._socket.bind((self._device, _IPV4))
            self._frame[6:12] = self._socket.getsockname()[4]
        except OSError:
            self._switch = b""

    def send(self, number: int) -> None:
        """Send a probe; one that cannot be sent is one that does not come back."""
        if self._switch:
            _NUMBER.pack_into(self._frame, _NUMBER_AT, number)
            with contextlib.suppress(OSError):
                self._socket.send(self._frame)

    def back(self) -> list[int]:
        """Numbers of probes that came back since the last call."""
        found, read = list[int](), self._read
        try:
            while True:
                length = self._socket.recv_into(read)
                if read[_SENDER] != self._own:
                    self._learn(bytes(read[6:12]))
                elif length >= _LENGTH and read[_CONTENT_AT:_NUMBER_AT] == self._mark:
                    found.append(_NUMBER.unpack_from(read, _NUMBER_AT)[0])
        except OSError:  # nothing more, or the device went down: it says so once
            return found

    def close(self) -> None:
        """Let go."""
        self._socket.close()

    def _learn(self, mac: bytes) -> None:
        if mac != self._switch:
            self._switch = mac
            self._frame[0:6] = mac


def _packet(own: bytes, session: bytes) -> bytes:
    """A probe from an address to itself."""
    content = _CONTENT.pack(_MARK, session, 0)
    length = _PORTS.size + len(content)
    fields = (0x45, _CLASS, _IP.size + length, 0, _WHOLE, _HOPS, _UDP)
    checksum = _checksum(_IP.pack(*fields, 0, own, own))
    return _IP.pack(*fields, checksum, own, own) + _PORTS.pack(PORT, PORT, length, 0) + content


def _checksum(header: bytes) -> int:
    """As IP has it: the complement of the sum of all words, in ones' complement."""
    total = sum(int(word) for (word,) in struct.iter_unpack("!H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _filter(own: bytes, peer: bytes) -> list[tuple[int, int, int, int]]:
    """Classic BPF that lets two kinds of whole UDP packets through.

    They are from ourselves to ourselves at our port, or from the peer to BFD's. A line is what to do, how
    many lines to skip if it is so and if not, and a figure.
    """
    load_byte, load_half, load_word, load_port, find_ports = 0x30, 0x28, 0x20, 0x48, 0xB1
    equal, any_of, take = 0x15, 0x45, 0x06
    mine, theirs = (int.from_bytes(address, "big") for address in (own, peer))
    return [
        (load_byte, 0, 0, 23),
        (equal, 0, 13, _UDP),
        (load_half, 0, 0, 20),
        (any_of, 11, 0, 0x1FFF),  # the rest of a packet that came in parts
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


def _attach(to: socket.socket, lines: list[tuple[int, int, int, int]]) -> None:
    """Let the kernel sort out, before anything is copied or anybody woken."""
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    to.setsockopt(
        socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(lines), ctypes.addressof(program))
    )


Looped = Literal["unknown", "well", "lost"]
"""Whether probes come back: not yet known, or never since it was forgotten; they do; they did."""

_LATE = 0.5  # of an interval, after which a tick is not in time
_LEAST = 0.25  # of an interval, that a probe has to come back before the next tick


@dataclass(slots=True)
class _Uplink:
    looped: Looped = "unknown"
    newest: int = 0  # the number of the last probe that came back
    back: int = 0  # how many came back so far
    row: int = 0  # how many one after the other, without a gap
    answered: bool = False  # since the last tick
    due: int = 0  # probes that had been due by the clock when the last came back
    others: dict[str, int] = field(default_factory=dict)  # how many were back there at that moment


class Echoes:
    """Of one host. Times are seconds of a clock that never goes backwards; probes are numbered from 1."""

    def __init__(self, devices: Iterable[str], interval: float, multiplier: int, now: float) -> None:
        self._uplinks = {device: _Uplink() for device in devices}
        self._interval, self._multiplier = interval, multiplier
        self._due = 0  # probes that should be back by the clock
        self.number = 0  # of the latest probe
        self.next_tick = now
        self.late = 0  # ticks that came late

    def came(self, device: str, number: int) -> None:
        """A probe is back; one that others have overtaken, or a copy, says nothing new."""
        uplink = self._uplinks[device]
        if uplink.newest < number <= self.number:
            uplink.row = uplink.row + 1 if number == uplink.newest + 1 else 1
            uplink.newest = number
            uplink.back += 1
            uplink.answered = True

    def tick(self, now: float) -> list[tuple[str, Looped]]:
        """What has changed, by device. All that came back is told before, the next probe is sent after."""
        if now - self.next_tick <= _LATE * self._interval:
            self._due = self.number
            self.next_tick += self._interval
        else:
            self.late += 1
            behind = (now - self.next_tick) / self._interval
            self.next_tick += ceil(behind + _LEAST) * self._interval
        self.number += 1
        changed = list[tuple[str, Looped]]()
        for device, uplink in self._uplinks.items():
            before = uplink.looped
            if uplink.answered:
                self._note(device, uplink)
            elif before == "well" and self._missed(device, uplink) >= self._multiplier:
                uplink.looped, uplink.row = "lost", 0
            if uplink.looped != before:
                changed.append((device, uplink.looped))
        return changed

    def forget(self, device: str) -> None:
        """It is down for another reason; when it is up again, another switch may be there."""
        self._uplinks[device].looped = "unknown"
        self._uplinks[device].row = 0

    def comes_back(self, device: str) -> bool | None:
        """Whether probes come back there at the moment; None where they never did since it is up."""
        uplink = self._uplinks[device]
        recent = self.number - uplink.newest <= self._multiplier
        return None if uplink.looped == "unknown" else uplink.looped == "well" and recent

    def _note(self, device: str, uplink: _Uplink) -> None:
        """Something came back: others are counted from here on."""
        uplink.answered = False
        uplink.due = self._due
        for name, other in self._uplinks.items():
            if name != device:
                uplink.others[name] = other.back
        if uplink.row >= self._multiplier:
            uplink.looped = "well"

    def _missed(self, device: str, uplink: _Uplink) -> int:
        """How many probes should have come back here since one did."""
        others = [
            other.back - uplink.others[name]
            for name, other in self._uplinks.items()
            if name != device and other.back
        ]
        return max(others, default=self._due - uplink.due)


class EchoWatch:
    """To be made inside the host's namespace; `now` is seconds of a clock that never goes backwards."""

    def __init__(self, uplinks: Sequence[Uplink], timing: Echo, now: float) -> None:
        session = os.urandom(8)  # what an earlier agent sent does not count
        self._echoes = Echoes((each.device for each in uplinks), timing.interval, timing.multiplier, now)
        self._sockets = dict[str, EchoSocket]()
        try:
            for each in uplinks:
                self._sockets[each.device] = EchoSocket(each, session)
        except BaseException:
            self.close()
            raise

    @property
    def next_tick(self) -> float:
        """When `tick` is due."""
        return self._echoes.next_tick

    @property
    def late(self) -> int:
        """Ticks that came late so far: this machine had something else to do."""
        return self._echoes.late

    def tick(self, now: float) -> list[tuple[str, Looped]]:
        """Read, judge, send; which uplinks are not any more what they were."""
        echoes = self._echoes
        for device, each in self._sockets.items():
            for number in each.back():
                echoes.came(device, number)
        changed = echoes.tick(now)
        for each in self._sockets.values():
            each.send(echoes.number)
        return changed

    def comes_back(self, device: str) -> bool | None:
        """Whether probes come back there at the moment; None where they never did since it is up."""
        return self._echoes.comes_back(device)

    def plug(self, device: str) -> None:
        """The device is there, or there again."""
        self._sockets[device].plug()

    def forget(self, device: str) -> None:
        """It is down for another reason than probes that do not come back."""
        self._echoes.forget(device)

    def close(self) -> None:
        """Let go."""
        for each in self._sockets.values():
            each.close()
