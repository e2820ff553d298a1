"""A part of a long list, and where it goes on."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of what was asked for. `next` is the `after` of the page that follows; None: there is none."""

    items: tuple[T, ...]
    next: str | None = None
