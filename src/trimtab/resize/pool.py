"""A pool: containers that share one CPU cap and one memory cap, on any number of nodes."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from trimtab.core import MIB, BadInputError, Bytes, Name, Number, StrictModel, quantity
from trimtab.kernel import read_user_file

_CPU_FLOOR = 0.02  # CPUs
_MEMORY_FLOOR = 16.0 * MIB
_WITHHELD = 0.2
_POLICY = "trimtab"


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its group's path, and labels and namespace from its runtime."""

    cgroup: str  # from the hierarchy's root, "/kubepods/burstable/pod1/abc"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects containers by group path (a shell pattern), labels and namespace; all must match."""

    cgroup: str = "*"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""

    def matches(self, container: Container) -> bool:
        return (
            fnmatch.fnmatchcase(container.cgroup, self.cgroup)
            and all(container.labels.get(name) == value for name, value in self.labels.items())
            and self.namespace in ("", container.namespace)
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """The caps, the selectors of its containers, and floors.

    `withheld` is the part of the memory cap that is not given out at first, but to containers that run out.
    """

    name: str
    cpu: float  # CPUs
    memory: float  # bytes
    select: tuple[Selector, ...]
    cpu_floor: float = _CPU_FLOOR
    memory_floor: float = _MEMORY_FLOOR
    withheld: float = _WITHHELD
    policy: str = _POLICY

    def owns(self, container: Container) -> bool:
        return any(selector.matches(container) for selector in self.select)

    def first_cpu(self, containers: int) -> float:
        """First CPU limit of each of so many containers (equation 2.1)."""
        return self.cpu / containers

    def first_memory(self, containers: int) -> float:
        """First memory limit of each, in bytes (equation 2.2)."""
        return self.memory * (1 - self.withheld) / containers


def _labels(value: Any) -> Any:
    """Read `app=shop` as `{app: shop}`."""
    return dict([value.partition("=")[::2]]) if isinstance(value, str) else value


CpuCap = Annotated[float, quantity(float, "a number of CPUs above zero, such as 0.5"), Field(gt=0)]
MemoryCap = Annotated[Bytes, Field(gt=0)]


class _SelectorEntry(StrictModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    cgroup: str = "*"
    label: Annotated[dict[str, str], BeforeValidator(_labels)] = Field(default_factory=dict)
    namespace: str = ""

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("a selector needs at least one of cgroup, label, namespace")
        return self


class _PoolEntry(StrictModel):
    name: Name
    cpu: CpuCap
    memory: MemoryCap
    select: Annotated[tuple[_SelectorEntry, ...], Field(min_length=1)]
    cpu_floor: CpuCap = _CPU_FLOOR
    memory_floor: MemoryCap = _MEMORY_FLOOR
    withheld: Annotated[Number, Field(ge=0, lt=1)] = _WITHHELD
    policy: str = _POLICY

    @model_validator(mode="after")
    def _floors_fit(self) -> Self:
        for name in ("cpu", "memory"):
            if getattr(self, f"{name}_floor") > getattr(self, name):
                raise ValueError(f"{name}_floor is above {name}, the cap of the whole pool")
        return self

    def pool(self) -> Pool:
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "select"}
        select = tuple(Selector(entry.cgroup, entry.label, entry.namespace) for entry in self.select)
        return Pool(select=select, **fields)


class _PoolsFile(StrictModel):
    pools: Annotated[tuple[_PoolEntry, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f'two pools are called "{repeated}"; give each its own name')
        return self


def read_pools(path: Path) -> tuple[Pool, ...]:
    """Pools from a YAML file."""
    return tuple(entry.pool() for entry in read_user_file(path, _PoolsFile, "of pools").pools)


def owner(container: Container, pools: Sequence[Pool]) -> Pool | None:
    """The pool that selects a container; None where none does, BadInputError where two do."""
    owners = [pool for pool in pools if pool.owns(container)]
    if len(owners) > 1:
        both = " and ".join(f'"{pool.name}"' for pool in owners[:2])
        raise BadInputError(
            f"{container.cgroup} belongs to the pools {both}; make their selectors exclude one another"
        )
    return owners[0] if owners else None
