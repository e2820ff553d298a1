"""A failover: what failed, what it cost; kept in memory and in a file, and told to whoever asked."""

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from trimtab.fabric.failover.uplinks import Cause
from trimtab.kernel import WrittenAside

KEPT = 100  # in memory
_MOST = 1 << 20  # bytes of the file, then it begins anew


@dataclass(frozen=True, slots=True)
class Failover:
    """An uplink failed at `time` (seconds since the epoch).

    `seconds` passed from hearing of it to the kernel's new routes; `paths` uplinks were not dead.
    """

    time: float
    uplink: str
    peer: str
    cause: Cause
    seconds: float
    paths: int


class FailoverRecord:
    """The latest failovers; each is appended to a file and given to `tell`, by a thread of its own."""

    def __init__(self, path: Path, tell: Callable[[Failover], None] = lambda failover: None) -> None:
        self._path, self._tell = path, tell
        self._latest = deque(read_failovers(path), maxlen=KEPT)
        self.count, self.seconds = 0, 0.0  # since this one began, and what they cost
        self._aside = WrittenAside(self._write, "a failover is not written down")

    def __call__(self, failover: Failover) -> None:
        """Remember it; nobody waits for a disk."""
        self.count, self.seconds = self.count + 1, self.seconds + failover.seconds
        self._latest.append(failover)
        self._aside.put(failover)

    @property
    def latest(self) -> tuple[Failover, ...]:
        """Oldest first."""
        return tuple(self._latest)

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._aside.__exit__(*raised)

    def _write(self, failover: Failover) -> None:
        self._append(failover)
        self._tell(failover)

    def _append(self, failover: Failover) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MOST:
            self._path.replace(self._path.with_suffix(".old"))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failover)) + "\n")


def read_failovers(path: Path) -> list[Failover]:
    """The latest in a file, oldest first; what is no failover there is left out."""
    return list(_read(path))[-KEPT:]


def _read(path: Path) -> Iterator[Failover]:
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                yield Failover(**json.loads(line))
