"""Something that happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to `subject` at `time` (seconds since the epoch).

    `id` is given by the store and grows: an event with a higher id was written later.
    """

    id: int
    time: float
    kind: str
    subject: str
    detail: Mapping[str, Any]
    tenant: str = "default"
