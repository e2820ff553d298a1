"""Extremely randomised trees whose leaves remember how far the training examples in them lie apart.

Fitting takes scikit-learn; predicting takes NumPy alone, walks all trees at once, and the whole forest is six
arrays that can be kept in a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.schema import Array

_POINTS = 8  # quantiles that stand for a leaf


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """How many trees, and how far they grow."""

    trees: int = 60
    smallest_leaf: int = 6  # examples
    features: float = 0.5  # part of the features looked at for a split
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All trees' nodes in a row. A node's left child is the next one; a leaf is its own right child."""

    roots: NDArray[np.int32]
    feature: NDArray[np.uint8]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    leaf: NDArray[np.int32]  # the row of `points`, of leaves; -1 of other nodes
    points: NDArray[np.float16]

    @classmethod
    def fit(cls, features: Array, labels: Array, settings: ForestSettings) -> "Forest":
        """From examples, one per row."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise MissingDependencyError(
                "fitting a forest needs scikit-learn; pip install 'trimtab[learn]'"
            ) from None
        rows = features.astype(np.float32)
        grown = ExtraTreesRegressor(
            n_estimators=settings.trees,
            min_samples_leaf=settings.smallest_leaf,
            max_features=settings.features,
            random_state=settings.seed,
        ).fit(rows, labels)
        roots, parts, offset, leaves = list[int](), list[tuple[NDArray[np.generic], ...]](), 0, 0
        for tree, reached in zip(grown.estimators_, grown.apply(rows).T, strict=True):
            nodes = tree.tree_
            is_leaf = nodes.children_left < 0
            own = np.arange(nodes.node_count) + offset
            number = np.where(is_leaf, np.cumsum(is_leaf) - 1 + leaves, -1)
            parts.append(
                (
                    np.where(is_leaf, 0, nodes.feature).astype(np.uint8),
                    np.where(is_leaf, -np.inf, nodes.threshold).astype(np.float32),
                    np.where(is_leaf, own, nodes.children_right + offset).astype(np.int32),
                    number.astype(np.int32),
                    _leaf_points(np.flatnonzero(is_leaf), reached, labels),
                )
            )
            roots.append(offset)
            offset += nodes.node_count
            leaves += int(is_leaf.sum())
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        return cls(np.array(roots, dtype=np.int32), *joined)

    def samples(self, features: Array) -> Array:
        """For every row of features, the leaves' labels over all trees: equally likely values."""
        rows = features.astype(np.float32)
        node = np.repeat(self.roots[None].astype(np.int64), len(rows), axis=0)
        row = np.arange(len(rows))[:, None]
        while (self.leaf[node] < 0).any():
            goes_left = rows[row, self.feature[node]] <= self.threshold[node]
            inside = self.leaf[node] < 0
            node = np.where(inside & goes_left, node + 1, self.right[node])
        return self.points[self.leaf[node]].reshape(len(rows), -1).astype(np.float64)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """What to keep in a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> "Forest":
        """Back from a file."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})  # type: ignore[arg-type]


def _leaf_points(leaves: NDArray[np.intp], reached: NDArray[np.intp], labels: Array) -> NDArray[np.float16]:
    """Quantiles of the labels in every leaf."""
    order = np.lexsort((labels, reached))
    ordered, values = reached[order], labels[order]
    first = np.searchsorted(ordered, leaves, side="left")
    count = np.searchsorted(ordered, leaves, side="right") - first
    position = (np.arange(_POINTS) + 0.5) / _POINTS * count[:, None]
    chosen = values[first[:, None] + np.minimum(position.astype(np.intp), count[:, None] - 1)]
    return np.asarray(chosen, dtype=np.float16)
