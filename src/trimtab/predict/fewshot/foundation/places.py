"""Where something can run: memory sizes under a CPU law, or the configurations that were learned from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.collect import LAWS, SIZES
from trimtab.core import MIB, BadInputError, did_you_mean, parse_memory_size
from trimtab.predict.fewshot import SETTINGS, FittedOurs

ALL = "all"
_CPUS = " cpus="  # in the key of a memory size, which buys more of them under one law than another
_HOST_CPUS = 2  # of the hosts on which functions were measured

Place = tuple[str, tuple[float, ...]]  # its key and its settings


@dataclass(frozen=True, slots=True)
class Places:
    """All there are in one environment."""

    environment: str
    known: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, fitted: FittedOurs, environment: str) -> "Places":
        matrix = fitted.curves.matrix
        rows = matrix.settings.tolist()
        return cls(environment, {key: tuple(rows[at]) for key, at in matrix.column_of.items()})

    def find(self, text: str) -> list[Place]:
        """The place of that name; every one for "all"."""
        if self.environment in LAWS:
            sizes = SIZES if text == ALL else (parse_memory_size(text),)
            return [self._size(size) for size in sizes]
        if text == ALL:
            return list(self.known.items())
        key = self._spelt(text)
        return [(key, self.known[key])]

    def _spelt(self, text: str) -> str:
        """The key of a configuration, whatever its case and spaces."""
        for key in self.known:
            if key.lower().split() == text.lower().split():
                return key
        some = f"; there are {len(self.known)}, such as {', '.join(list(self.known)[:3])}"
        raise BadInputError(f'no configuration is called "{text}"{did_you_mean(text, self.known) or some}')

    def _size(self, megabytes: int) -> Place:
        """A memory size, with the CPUs it buys under the environment's law."""
        cpus = LAWS[self.environment].cpus(megabytes, _HOST_CPUS)
        given = {"memory_bytes": float(megabytes * MIB), "cpus": cpus, "nodes": 1.0, "accelerators": 0.0}
        return f"{megabytes:g}MB{_CPUS}{cpus:g}", tuple(given.get(name, math.nan) for name in SETTINGS)


def called(key: str) -> str:
    """What people call a configuration: of a memory size, without the CPUs that it buys."""
    return key.partition(_CPUS)[0]
