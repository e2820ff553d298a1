"""What every bench answers with: figures, what they are compared with, and the seed that reproduces them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people; cells are printed as they are."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """`figures` are ours, `baselines` the rules and peers in the same run, `published` what papers say."""

    bench: str
    figures: dict[str, Any]
    baselines: dict[str, Any]
    published: dict[str, Any]
    seed: int
    tables: tuple[Table, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """The contract of `--json`: one object with exactly these keys."""
        return {
            "bench": self.bench,
            "figures": self.figures,
            "baselines": self.baselines,
            "published": self.published,
            "seed": self.seed,
        }
