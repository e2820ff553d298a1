"""A pool: containers that share one cap of CPU and of memory, wherever they run."""

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, parse_bytes, refuse_unknown
from trimtab.kernel import read_yaml

MIB = 2**20
_NAMES = ("name", "cpu", "memory", "select", "cpu_floor", "memory_floor", "withheld", "policy")
_SELECTORS = ("cgroup", "label", "namespace")


@dataclass(frozen=True, slots=True)
class Container:
    """What a node knows of a container: its group's path, and what its runtime says about it."""

    cgroup: str  # from the hierarchy's root, "/kubepods/burstable/pod1/abc"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Selector:
    """Containers by their group's path (a shell pattern), labels and namespace: all that is given holds."""

    cgroup: str = "*"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""

    def matches(self, container: Container) -> bool:
        """Whether it is one of them."""
        return (
            fnmatch.fnmatchcase(container.cgroup, self.cgroup)
            and all(container.labels.get(name) == value for name, value in self.labels.items())
            and self.namespace in ("", container.namespace)
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """The caps, whom they hold for, and what is kept back.

    `withheld` is the part of the memory cap that nobody gets at first: it is there for those who run out.
    """

    name: str
    cpu: float  # CPUs
    memory: float  # bytes
    select: tuple[Selector, ...]
    cpu_floor: float = 0.02  # CPUs
    memory_floor: float = 16.0 * MIB
    withheld: float = 0.2
    policy: str = "trimtab"

    def owns(self, container: Container) -> bool:
        """Whether any selector matches."""
        return any(selector.matches(container) for selector in self.select)

    def first_cpu(self, containers: int) -> float:
        """CPUs of each of so many containers before anything is known of them (equation 2.1)."""
        return self.cpu / containers

    def first_memory(self, containers: int) -> float:
        """Bytes of each (equation 2.2)."""
        return self.memory * (1 - self.withheld) / containers


def read_pools(path: Path) -> tuple[Pool, ...]:
    """Pools from a YAML file; a name that comes twice, or a cap that is none, is refused."""
    told = read_yaml(path, "of pools")
    listed = told.get("pools") if isinstance(told, dict) else None
    if not isinstance(listed, list) or not listed:
        raise BadInputError(f"{path} has no pools; it needs a list of them under pools:")
    pools = tuple(_pool(f"{path}, pool {number}", each) for number, each in enumerate(listed, 1))
    names = [pool.name for pool in pools]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f'{path}: two pools are called "{name}"; give each a name of its own')
    return pools


def owner(container: Container, pools: Sequence[Pool]) -> Pool | None:
    """The pool a container belongs to; None where no pool wants it, an error where two do."""
    owners = [pool for pool in pools if pool.owns(container)]
    if len(owners) > 1:
        both = " and ".join(f'"{pool.name}"' for pool in owners[:2])
        raise BadInputError(
            f"{container.cgroup} belongs to the pools {both}; make their selectors exclude one another"
        )
    return owners[0] if owners else None


def _pool(where: str, told: object) -> Pool:
    if not isinstance(told, dict):
        raise BadInputError(f"{where} is not a set of names and values, such as cpu: 2, memory: 4GiB")
    refuse_unknown(where, told, _NAMES)
    name = told.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,63}", name):
        raise BadInputError(f"{where}: needs a name of letters, digits, dots and hyphens")
    given: dict[str, Any] = {
        key: _amount(f"{where}, {key}", told[key], key.startswith("memory"))
        for key in ("cpu", "memory", "cpu_floor", "memory_floor")
        if key in told
    }
    for key in ("cpu", "memory"):
        if key not in given:
            raise BadInputError(f"{where}: needs a cap for {key}")
    if "withheld" in told:
        given["withheld"] = _part(f"{where}, withheld", told["withheld"])
    if "policy" in told:
        given["policy"] = str(told["policy"])
    selectors = told.get("select")
    if not isinstance(selectors, list) or not selectors:
        raise BadInputError(f"{where}: needs select, a list such as [{{cgroup: /shop/*}}]")
    pool = Pool(name=name, select=tuple(_selector(f"{where}, select", each) for each in selectors), **given)
    for floor, cap, what in ((pool.cpu_floor, pool.cpu, "cpu"), (pool.memory_floor, pool.memory, "memory")):
        if floor > cap:
            raise BadInputError(f"{where}: {what}_floor is above the cap of the whole pool")
    return pool


def _selector(where: str, told: object) -> Selector:
    if not isinstance(told, dict) or not told:
        raise BadInputError(f"{where}: a selector is one or more of {', '.join(_SELECTORS)}")
    refuse_unknown(where, told, _SELECTORS)
    labels = told.get("label", {})
    if isinstance(labels, str):
        labels = dict([labels.partition("=")[::2]])
    if not isinstance(labels, dict):
        raise BadInputError(f"{where}: label is app=shop, or a set of names and values")
    return Selector(
        str(told.get("cgroup", "*")),
        {str(name): str(value) for name, value in labels.items()},
        str(told.get("namespace", "")),
    )


def _amount(where: str, value: Any, is_bytes: bool) -> float:
    try:
        amount = parse_bytes(value) if is_bytes and isinstance(value, str) else float(value)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from None
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not 0 < amount < math.inf:
        raise BadInputError(f"{where}: {value!r:.40} is not an amount above zero")
    return amount


def _part(where: str, value: Any) -> float:
    part = float(value) if isinstance(value, int | float) else math.nan
    if not 0 <= part < 1:
        raise BadInputError(f"{where}: {value!r:.40} is not a part from 0 up to 1")
    return part
