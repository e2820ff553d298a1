"""A graph in the making: parts of a model in running order, and the tensors between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trimtab.partition.capture.tensor_parallel import split_columns
from trimtab.partition.capture.work import Held, Work
from trimtab.partition.graph import Graph, Tie


@dataclass(slots=True)
class Part:
    """One node to be. `saved` bytes, like everything here, are those of the whole example batch."""

    name: str
    block: str
    kind: str
    work: Work
    saved: float = 0.0


@dataclass(slots=True)
class Draft:
    """Parts, tensors (their maker and bytes) and uses (a tensor and its user), for a batch of examples."""

    batch: int
    held: Mapping[int, Held]
    parts: list[Part] = field(default_factory=list)
    tensors: list[tuple[int, float]] = field(default_factory=list)
    uses: list[tuple[int, int]] = field(default_factory=list)

    def graph(self, name: str) -> Graph:
        """Columns per sample; parts that read the same weight are tied."""
        works = [part.work for part in self.parts]
        producer = np.array([maker for maker, _ in self.tensors], dtype=np.int64)
        size = np.array([size for _, size in self.tensors], dtype=np.float64) / self.batch
        used = np.array([tensor for tensor, _ in self.uses], dtype=np.int64)
        user = np.array([user for _, user in self.uses], dtype=np.int64)
        parameters, buffers = self._weights(works)
        kinds = tuple(part.kind for part in self.parts)
        columns = split_columns(kinds, parameters, producer, size, used, user)
        return Graph(
            name=name,
            names=_distinct([part.name for part in self.parts]),
            blocks=tuple(part.block for part in self.parts),
            kinds=kinds,
            calls=np.array([work.calls for work in works]),
            flop=np.array([work.flop for work in works]) / self.batch,
            traffic=np.array([work.traffic for work in works]) / self.batch,
            parameters=parameters,
            buffers=buffers,
            saved=np.array([part.saved for part in self.parts]) / self.batch,
            split=columns.split,
            reduced_forward=columns.forward,
            reduced_backward=columns.backward,
            producer=producer,
            size=size,
            used=used,
            user=user,
            ties=self._ties(works),
        )

    def _weights(self, works: list[Work]) -> tuple[np.ndarray, np.ndarray]:
        """Trained numbers of each part, and bytes of what is not, the latter with their first reader."""
        parameters, buffers = np.zeros(len(works)), np.zeros(len(works))
        counted: set[int] = set()
        for node, work in enumerate(works):
            for key in work.held:
                held = self.held[key]
                if held.trained:
                    parameters[node] += held.numbers
                elif key not in counted:
                    buffers[node] += held.size
                    counted.add(key)
        return parameters, buffers

    def _ties(self, works: list[Work]) -> tuple[Tie, ...]:
        readers: dict[int, list[int]] = {}
        for node, work in enumerate(works):
            for key in work.held:
                if self.held[key].trained:
                    readers.setdefault(key, []).append(node)
        shared: dict[tuple[int, ...], float] = {}
        for key, nodes in readers.items():
            if len(nodes) > 1:
                shared[tuple(nodes)] = shared.get(tuple(nodes), 0.0) + self.held[key].numbers
        return tuple(Tie(nodes, numbers) for nodes, numbers in sorted(shared.items()))


def _distinct(names: list[str]) -> tuple[str, ...]:
    """The same names, numbered from the second of its kind on."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(result)
