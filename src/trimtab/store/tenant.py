"""Somebody who shares the fleet."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of people with jobs. `guarantee` and `limit` are accelerators; `weight` shares what is left."""

    name: str
    parent: str | None = None
    guarantee: float = 0.0
    weight: float = 1.0
    limit: float | None = None

    def columns(self) -> dict[str, Any]:
        """As a row."""
        return asdict(self)
