"""Which containers are there? Control groups by their path, with what runtimes say about them.

Asked every period, so only what was made or removed since the last time is looked at; now and then everything
is, in case the kernel did not tell.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trimtab.kernel import GroupTree, Hierarchy, process_names
from trimtab.resize.pool import Container, Pool
from trimtab.resize.runtimes import RUNC_STATES, RuntimeStates

EVERYWHERE = 5.0  # s between two looks at everything
_YOUNG = 2.0  # s in which an empty group is looked at every time: somebody is about to enter it
_OLD = 1.0  # s between two looks at it later
_WILD = "*?["
_RUNC_AT_WORK = "runc:["  # how its process is called until runc has written limits of its own
_PAUSE = "pause"  # it holds a pod's namespaces and does nothing; Kubernetes does not count it either

Describe = Callable[[str], Container | None]


@dataclass(slots=True)
class _Empty:
    """A group in which nobody runs: since when it is known, and when to look again (s)."""

    since: float
    due: float


class Discovery:
    """Whom the pools mean. A group counts from when something runs in it, with limits its runtime has set."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        pools: Sequence[Pool],
        states: Sequence[Path] = RUNC_STATES,
        also_below: Sequence[str] = (),
        describe: Describe = lambda path: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`describe` says more about groups than their path, for example about those below `also_below`."""
        self._root = hierarchy.folders.get("cpu") or next(iter(hierarchy.folders.values()))
        self._pools = tuple(pools)
        patterns = {selector.cgroup for pool in pools for selector in pool.select} - {"*"}
        self._tree = GroupTree(self._root, [*map(_until_wild, patterns), *also_below])
        self._states = RuntimeStates(states)
        self._describe = describe
        self._now = now
        self._looked_everywhere = -EVERYWHERE
        self._meant: dict[str, Container] = {}  # by the pools, by path
        self._empty: dict[str, _Empty] = {}
        self._found: list[Container] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __call__(self, told_anew: bool = False) -> Sequence[Container]:
        """Everyone there now; `told_anew` where `describe` would say something else than the last time."""
        now = self._now()
        everywhere = now >= self._looked_everywhere + EVERYWHERE
        if everywhere:
            self._looked_everywhere = now
        changes = self._tree.refresh(everywhere), self._states.refresh(everywhere), told_anew
        if any(changes):
            self._sort_out(now)
        entered = [path for path in self._empty if self._has_been_entered(path, now)]
        for path in entered:
            del self._empty[path]
        if entered or any(changes):
            self._found = [each for path, each in self._meant.items() if path not in self._empty]
        return self._found

    def close(self) -> None:
        """Watch nothing any more."""
        self._tree.close()
        self._states.close()

    def _sort_out(self, now: float) -> None:
        """Whom the pools mean, by all that is known; those not met before count as empty at first."""
        before, told = self._meant, self._states.containers
        self._meant = {
            container.cgroup: container
            for container in self._candidates(told)
            if any(pool.owns(container) for pool in self._pools)
        }
        self._empty = {
            path: self._empty.get(path) or _Empty(now, now)
            for path in self._meant
            if path in self._empty or path not in before
        }

    def _candidates(self, told: dict[str, Container]) -> Iterator[Container]:
        for path in self._tree.paths:
            yield self._describe(path) or told.pop(path, None) or Container(path)
        yield from told.values()  # groups that no pattern leads to

    def _has_been_entered(self, path: str, now: float) -> bool:
        empty = self._empty[path]
        if now < empty.due:
            return False
        names = process_names(self._root / path.lstrip("/"))
        if any(not name.startswith(_RUNC_AT_WORK) and name != _PAUSE for name in names):
            return True
        empty.due = now if now < empty.since + _YOUNG else now + _OLD
        return False


def containers(
    hierarchy: Hierarchy, pools: Sequence[Pool], states: Sequence[Path] = RUNC_STATES
) -> list[Container]:
    """Every container that some pool means, each once: a single look."""
    with Discovery(hierarchy, pools, states) as discovery:
        return list(discovery())


def _until_wild(pattern: str) -> str:
    """Where to look for groups that match a shell pattern: "/shop" for "/shop/*", "" for "/*".

    `*` in a selector matches any part of a path, slashes too, so below the first wild word all are tried.
    """
    words = pattern.strip("/").split("/")
    wild = [any(sign in word for sign in _WILD) for word in words]
    plain = words[: wild.index(True)] if True in wild else words
    return "".join(f"/{word}" for word in plain)
