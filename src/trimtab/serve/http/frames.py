"""What the API's process and the one that writes for it say to each other: lengths, and pickles of ours.

Both ends of the socket are Trimtab's own, and nobody else can reach it.
"""

import pickle  # nosec B403 # see above
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trimtab.serve.http.answer import Answer
from trimtab.serve.principal import Principal

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the path of its route, who asks, what handlers need of its scope, and its body."""

    number: int
    route: str
    principal: Principal
    scope: dict[str, Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """Its answer; `why` is for the log alone."""

    number: int
    answer: Answer
    why: str | None


def framed(said: Asked | Done) -> bytes:
    """As bytes."""
    packed = pickle.dumps(said, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(packed)) + packed


class Frames:
    """Takes bytes as they come, and gives what is whole."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[Any]:
        """What is whole with these."""
        self._rest += data
        place = 0
        while place + _LENGTH.size <= len(self._rest):
            start = place + _LENGTH.size
            end = start + _LENGTH.unpack_from(self._rest, place)[0]
            if end > len(self._rest):
                break
            yield pickle.loads(self._rest[start:end])  # nosec B301 # see above
            place = end
        del self._rest[:place]
