"""What there is to say about a store as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Its name, schema, size (bytes, its log included) and how many rows each table has."""

    name: str
    schema: str
    size: int
    rows: Mapping[str, int]
