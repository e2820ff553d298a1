"""A column of strings, each kept once."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray


def is_pattern(name: str) -> bool:
    """Whether `name` has a wildcard in it."""
    return any(character in name for character in "*?[")


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """A dictionary-encoded column: row i holds `vocabulary[codes[i]]`. An empty string stands for none."""

    codes: NDArray[np.int32]
    vocabulary: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> "Strings":
        """Encode `values`; the vocabulary is in order of appearance."""
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(v, len(index)) for v in values), dtype=np.int32)
        return cls(codes, tuple(index))

    def __post_init__(self) -> None:
        self.codes.setflags(write=False)

    def values(self) -> list[str]:
        """The column as plain strings."""
        return [self.vocabulary[code] for code in self.codes.tolist()]

    def matches(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Which rows hold one of `names`, in any case; wildcards allowed."""
        wanted = [name.lower() for name in names]
        plain = {name for name in wanted if not is_pattern(name)}
        patterns = [name for name in wanted if name not in plain]
        hits = (
            v in plain or any(fnmatchcase(v, p) for p in patterns) for v in map(str.lower, self.vocabulary)
        )
        allowed = np.fromiter(hits, dtype=np.bool_, count=len(self.vocabulary))
        return allowed[self.codes] if len(self.vocabulary) else np.zeros(len(self.codes), dtype=np.bool_)
