"""A pipeline's file as it was read, with what its reader needs to know beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """`folder` is where commands run, `artifacts` where files between stages of a cluster's pipeline go.

    `parameters` are the pipeline's own, as the user gave them.
    """

    path: Path
    documents: tuple[Any, ...]
    folder: Path
    artifacts: Path
    parameters: Mapping[str, str] = field(default_factory=dict)


def mapping(value: Any) -> Mapping[str, Any]:
    """A value of a file as names and values; none where it is something else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """A value of a file as a list; empty where it is something else."""
    return value if isinstance(value, list) else []
