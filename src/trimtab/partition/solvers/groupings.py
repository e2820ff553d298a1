"""Ways to group devices into rows that can each run a stage, and how replicas share a micro-batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.partition.devices import Devices
from trimtab.partition.layout import Row

Rank = tuple[int, ...]

_FEW = range(2, 9)  # replicas of different speeds, beside one on every device


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows of `replicas` ranks of `tensor` devices each; `pace` of every replica, relative to the others."""

    rows: tuple[Row, ...]
    replicas: int
    tensor: int
    pace: tuple[float, ...]

    @property
    def even(self) -> bool:
        """Whether all replicas are equally fast."""
        return max(self.pace) - min(self.pace) <= 1e-6 * max(self.pace)

    def shares(self, samples: int) -> tuple[int, ...] | None:
        """How replicas share so many samples; None where one would get none, or equals unequal numbers."""
        if samples < self.replicas or (self.even and samples % self.replicas):
            return None
        exact = np.array(self.pace) / sum(self.pace) * samples
        whole = np.maximum(1, np.floor(exact)).astype(int)
        while whole.sum() > samples:
            whole[int(np.argmax(whole - exact))] -= 1
        for index in np.argsort(-(exact - whole), kind="stable")[: samples - int(whole.sum())]:
            whole[index] += 1
        return tuple(int(each) for each in whole)


def groupings(
    devices: Devices, speed: NDArray[np.float64], most_replicas: int, most_tensor: int
) -> Iterator[Grouping]:
    """Every way that makes sense: replicas of a row alike, next to each other or far apart, or mixed."""
    tensor = 1
    while tensor <= most_tensor:
        ranks = _ranks(devices, tensor)
        if not ranks:
            return
        for replicas in _numbers(min(most_replicas, len(ranks))):
            seen: set[tuple[Row, ...]] = set()
            for rows in (
                _alike(devices, ranks, replicas, near=True),
                _alike(devices, ranks, replicas, near=False),
                _mixed(ranks, replicas, speed) if replicas in (*_FEW, len(ranks)) else (),
            ):
                if rows and rows not in seen:
                    seen.add(rows)
                    pace = [sum(float(speed[row[r][0]]) for row in rows) for r in range(replicas)]
                    yield Grouping(rows, replicas, tensor, tuple(pace))
        tensor *= 2


def _numbers(most: int) -> list[int]:
    """Numbers of replicas worth trying: all small ones, then those with few odd factors, and the most."""
    return [
        n for n in range(1, most + 1) if n <= 4 or n == most or n % (1 << max(0, n.bit_length() - 2)) == 0
    ]


def _ranks(devices: Devices, tensor: int) -> list[Rank]:
    """Devices of one kind in one machine, so many together."""
    together: dict[tuple[int, str], list[int]] = {}
    for index, device in enumerate(devices.devices):
        together.setdefault((device.machine, device.kind), []).append(index)
    return [
        tuple(members[start : start + tensor])
        for members in together.values()
        for start in range(0, len(members) - tensor + 1, tensor)
    ]


def _alike(devices: Devices, ranks: list[Rank], replicas: int, near: bool) -> tuple[Row, ...]:
    """Rows of one kind each: of neighbours, or of ranks as far apart as there are rows."""
    by_kind: dict[str, list[Rank]] = {}
    for rank in ranks:
        by_kind.setdefault(devices[rank[0]].kind, []).append(rank)
    rows: list[Row] = []
    for members in by_kind.values():
        count = len(members) // replicas
        for row in range(count):
            chosen = (
                range(row * replicas, (row + 1) * replicas) if near else range(row, count * replicas, count)
            )
            rows.append(tuple(members[index] for index in chosen))
    return tuple(rows)


def _mixed(ranks: list[Rank], replicas: int, speed: NDArray[np.float64]) -> tuple[Row, ...]:
    """Replicas of neighbours each, fast ones together; so rows are of several kinds."""
    ordered = sorted(ranks, key=lambda rank: -float(speed[rank[0]]))
    count = len(ordered) // replicas
    return tuple(tuple(ordered[r * count + row] for r in range(replicas)) for row in range(count))
