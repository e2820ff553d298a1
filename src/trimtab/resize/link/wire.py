"""Messages between a controller and its agents: packed bytes, refused unless every part is valid.

A message is a header and up to four sections of rows, little endian. The header has the stream (`session`),
its number in its direction (`sequence`), and the last number received from the other side (`heard`): so
either end knows which messages the other had, and no old or foreign message is accepted.
"""

import json
import math
import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import TrimtabError, from_plain, one_line, to_plain
from trimtab.resize.pool import Pool

VERSION = 1
SERVICE, PROCEDURE = "trimtab.Resize", "Attend"
METHOD = f"/{SERVICE}/{PROCEDURE}"  # for a gRPC client
_MAGIC = b"TTRM"
# Magic, version, kind, session, sequence, heard, seconds, and how many rows each section has.
_HEADER = struct.Struct("<4sBBxxQQQd4I")

ROW = np.dtype(
    [
        ("slot", "<u4"),
        ("throttled", "<u4"),  # throttled periods since the last report
        ("used", "<f8"),  # CPUs since the last report
        ("cpus", "<f8"),  # limit in force; 0 where none has been set
        ("memory", "<f8"),  # bytes, limit in force; 0 where none has been set
        ("memory_used", "<f8"),  # bytes
    ]
)
LIMIT = np.dtype([("slot", "<u4"), ("value", "<f8")])  # CPUs or bytes
_JOIN = np.dtype([("slot", "<u4"), ("pool", "<u4"), ("length", "<u4")])
_LEAVE = np.dtype("<u4")
_TEXT = np.dtype("u1")

MOST_CONTAINERS = 16_384  # of one node
MOST_BYTES = 4 * 2**20  # of one message
_MOST_SLOT = 4 * MOST_CONTAINERS
_MOST_CPUS = 1e6
_MOST_MEMORY = 2.0**60
_MOST_SECONDS = 1e6
_MOST_PATH = 4096  # bytes
_MOST_OF_ROW = np.array([_MOST_CPUS, _MOST_CPUS, _MOST_MEMORY, _MOST_MEMORY])

Rows = NDArray[Any]


class WireError(TrimtabError):
    """A message that is malformed, repeated or has impossible values."""


def limits(slots: Any = (), values: Any = ()) -> Rows:
    """Rows of limits."""
    rows = np.empty(len(slots), LIMIT)
    rows["slot"], rows["value"] = slots, values
    return rows


@dataclass(frozen=True, slots=True)
class Hello:
    """Agent: opens a stream; its name is in its certificate."""


@dataclass(frozen=True)
class Welcome:
    """Controller: the pools, and the seconds for which it may be silent."""

    pools: tuple[Pool, ...]
    patience: float  # s

    @cached_property
    def text(self) -> bytes:
        """The pools as JSON."""
        return json.dumps(to_plain(self.pools)).encode()


@dataclass(frozen=True, slots=True)
class Join:
    """A container that the last report did not have; its limits in force are in its row."""

    slot: int
    pool: int
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Agent, every period: all its containers, and changes since the last one. Leaves come before joins."""

    seconds: float  # since the last one
    rows: Rows
    joins: tuple[Join, ...] = ()
    leaves: Rows = field(default_factory=lambda: np.empty(0, _LEAVE))


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """Controller, for every report, and when memory is needed elsewhere: first takes, then gives.

    A take never raises a limit, even if it was ordered before an earlier, lower take was confirmed.
    """

    cpu_takes: Rows = field(default_factory=limits)
    cpu_gives: Rows = field(default_factory=limits)
    memory_takes: Rows = field(default_factory=limits)
    memory_gives: Rows = field(default_factory=limits)
    urgent: bool = False  # a container elsewhere is paused: confirm at once


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """Agent: this container is paused for lack of memory."""

    slot: int
    memory: float  # bytes, its limit


@dataclass(frozen=True, slots=True)
class MemoryGrant:
    """Controller: the container's new limit; None if there is nothing to give."""

    slot: int
    memory: float | None  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class MemoryConfirmation:
    """Agent: after urgent orders, the memory limits in force."""

    memory: Rows


Message = Hello | Welcome | Report | Orders | MemoryRequest | MemoryGrant | MemoryConfirmation
_KINDS: tuple[type[Message], ...] = (
    Hello,
    Welcome,
    Report,
    Orders,
    MemoryRequest,
    MemoryGrant,
    MemoryConfirmation,
)


class MessageStream:
    """One end of a stream: numbers messages it sends, and refuses messages that are out of order."""

    def __init__(self, session: int = 0) -> None:
        self.session = session  # 0 until the controller has chosen it
        self.sent = 0  # the last number sent
        self.heard = 0  # the last number received
        self.acknowledged = 0  # the last number that the other side had received

    def pack(self, message: Message) -> bytes:
        """The next message to send."""
        self.sent += 1
        seconds, counts, body = _packed(message)
        kind = _KINDS.index(type(message))
        header = _HEADER.pack(_MAGIC, VERSION, kind, self.session, self.sent, self.heard, seconds, *counts)
        return b"".join((header, *body))

    def unpack(self, data: bytes) -> Message:
        """Parse a message; raises `WireError` and changes nothing where it is invalid."""
        if not _HEADER.size <= len(data) <= MOST_BYTES:
            raise WireError(f"a message has {_HEADER.size} to {MOST_BYTES} bytes, not {len(data)}")
        magic, version, kind, session, sequence, heard, seconds, *counts = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise WireError(f"a message begins with {magic!r}, not {_MAGIC!r}")
        if version != VERSION:
            raise WireError(
                f"a message has version {version}, this side has {VERSION}: install the same version"
            )
        if kind >= len(_KINDS):
            raise WireError(f"there is no message of kind {kind}")
        self._check_turn(_KINDS[kind], session, sequence, heard)
        message = _unpacked(_KINDS[kind], seconds, counts, data)
        self.session = session or self.session
        self.heard, self.acknowledged = sequence, heard
        return message

    def _check_turn(self, kind: type[Message], session: int, sequence: int, heard: int) -> None:
        if kind is Hello or kind is Welcome:
            if self.heard or (session == 0) != (kind is Hello):
                raise WireError("a greeting came after the first message of a stream")
        elif not self.session or session != self.session:
            raise WireError("a message belongs to another stream")
        if sequence <= self.heard:
            raise WireError(f"message {sequence} is repeated or out of order; the last one was {self.heard}")
        if not self.acknowledged <= heard <= self.sent:
            raise WireError(f"a message acknowledges {heard}, not {self.acknowledged} to {self.sent}")


def _packed(message: Message) -> tuple[float, tuple[int, int, int, int], tuple[bytes, ...]]:
    """A message's seconds, row counts and sections."""
    match message:
        case Report(seconds, rows, joins, leaves):
            paths = [join.path.encode() for join in joins]
            table = np.array(
                [(join.slot, join.pool, len(path)) for join, path in zip(joins, paths, strict=True)], _JOIN
            )
            text = b"".join(paths)
            counts = len(rows), len(leaves), len(joins), len(text)
            return seconds, counts, (rows.tobytes(), leaves.tobytes(), table.tobytes(), text)
        case Orders(a, b, c, d, urgent):
            body = a.tobytes(), b.tobytes(), c.tobytes(), d.tobytes()
            return float(urgent), (len(a), len(b), len(c), len(d)), body
        case MemoryRequest(slot, in_force):
            return 0.0, (1, 0, 0, 0), (limits([slot], [in_force]).tobytes(),)
        case MemoryGrant(slot, memory):
            return 0.0, (1, 0, 0, 0), (limits([slot], [memory or 0.0]).tobytes(),)
        case MemoryConfirmation(memory):
            return 0.0, (len(memory), 0, 0, 0), (memory.tobytes(),)
        case Welcome():
            return message.patience, (0, 0, 0, len(message.text)), (message.text,)
        case Hello():
            return 0.0, (0, 0, 0, 0), ()


def _unpacked(kind: type[Message], seconds: float, counts: list[int], data: bytes) -> Message:
    if not 0 <= seconds <= _MOST_SECONDS:
        raise WireError(f"a period of {seconds} s is impossible")
    if kind is Report:
        rows, leaves, table, text = _sections(data, counts, (ROW, _LEAVE, _JOIN, _TEXT))
        _check_rows(rows)
        _check_slots(leaves)
        return Report(seconds, rows, _joins(table, text), leaves)
    if kind is Welcome:
        *others, text = _sections(data, counts, (LIMIT, LIMIT, LIMIT, _TEXT))
        _check_empty(others)
        return Welcome(_pools(text), seconds)
    sections = _sections(data, counts, (LIMIT,) * 4)
    for section in sections:
        _check_limits(section)
    if kind is Orders:
        takes, gives, memory_takes, memory_gives = sections
        return Orders(takes, gives, memory_takes, memory_gives, urgent=seconds > 0)
    first, *others = sections
    _check_empty(others)
    if kind is MemoryConfirmation:
        return MemoryConfirmation(first)
    if len(first) != (0 if kind is Hello else 1):
        raise WireError(f"a {kind.__name__} has {len(first)} rows")
    if kind is Hello:
        return Hello()
    slot, value = first[0].item()
    return MemoryRequest(slot, value) if kind is MemoryRequest else MemoryGrant(slot, value or None)


def _sections(data: bytes, counts: list[int], kinds: tuple[np.dtype[Any], ...]) -> list[Rows]:
    """The rows of each section; together they must fill the message after its header."""
    need = sum(count * kind.itemsize for count, kind in zip(counts, kinds, strict=True))
    if _HEADER.size + need != len(data):
        raise WireError(f"a message announces {need} bytes and has {len(data) - _HEADER.size}")
    sections, at = [], _HEADER.size
    for count, kind in zip(counts, kinds, strict=True):
        sections.append(np.frombuffer(data, kind, count, at) if count else np.empty(0, kind))
        at += count * kind.itemsize
    return sections


def _check_rows(rows: Rows) -> None:
    if not len(rows):
        return
    _check_slots(rows["slot"])
    numbers = rows.view("<f8").reshape(len(rows), ROW.itemsize // 8)[:, 1:]
    # Not true of NaN either.
    if not (numbers.min() >= 0 and (numbers.max(axis=0) <= _MOST_OF_ROW).all()):
        raise WireError("a report has a number that is negative, too large or NaN")


def _check_limits(rows: Rows) -> None:
    if not len(rows):
        return
    _check_slots(rows["slot"])
    if not ((rows["value"] >= 0) & (rows["value"] <= _MOST_MEMORY)).all():
        raise WireError("a limit is negative, too large or NaN")


def _check_slots(slots: Rows) -> None:
    """Slots must be unique, in order, and within a node's range."""
    if len(slots) and (slots[-1] >= _MOST_SLOT or (slots[1:] <= slots[:-1]).any()):
        raise WireError("a message has slots twice, out of order or out of range")


def _joins(table: Rows, text: Rows) -> tuple[Join, ...]:
    if not len(table) and not len(text):
        return ()
    _check_slots(table["slot"])
    if int(table["length"].sum(dtype=np.uint64)) != len(text):
        raise WireError("the paths of new containers do not have the announced length")
    raw, joins, at = text.tobytes(), [], 0
    for slot, pool, length in table.tolist():
        try:
            path = raw[at : at + length].decode()
        except UnicodeDecodeError:
            path = ""
        if not is_path(path):
            raise WireError(f'"{one_line(path):.60}" is not the path of a control group')
        joins.append(Join(slot, pool, path))
        at += length
    return tuple(joins)


def is_path(path: str) -> bool:
    """Whether it can be a control group's path, and is printable."""
    return path.startswith("/") and path.isprintable() and len(path.encode()) <= _MOST_PATH


def _pools(text: Rows) -> tuple[Pool, ...]:
    try:
        pools = from_plain(tuple[Pool, ...], json.loads(text.tobytes()), "pools")
    except (ValueError, RecursionError, TrimtabError):
        raise WireError("the controller's pools cannot be read") from None
    amounts = [(pool.cpu, pool.memory, pool.cpu_floor, pool.memory_floor) for pool in pools]
    if not pools or not all(0 < amount < math.inf for pool_amounts in amounts for amount in pool_amounts):
        raise WireError("the controller has no pools, or a cap that is not above zero")
    return pools


def _check_empty(sections: list[Rows]) -> None:
    if any(len(section) for section in sections):
        raise WireError("a message has sections that its kind does not have")
