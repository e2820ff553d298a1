"""Backtests on labelled groups: what a model predicts of groups (models, applications, jobs) it has not seen.

A group is held out whole: rows of one group err together, so a row scored by a fit that saw its siblings
would look better than a new group's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Labels = Sequence[str] | NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """One fold: the names of the groups held out, and where their rows are."""

    groups: tuple[str, ...]
    rows: Flags

    @property
    def training(self) -> Flags:
        return ~self.rows


def leave_one_group_out(labels: Labels) -> Iterator[HeldOut]:
    """Every group in turn, in order of appearance."""
    return _folds(labels, 1)


def leave_two_groups_out(labels: Labels) -> Iterator[HeldOut]:
    """Every pair of groups in turn; each fit can score both."""
    return _folds(labels, 2)


def _folds(labels: Labels, together: int) -> Iterator[HeldOut]:
    names = np.asarray(labels)
    for groups in combinations(dict.fromkeys(names.tolist()), together):
        yield HeldOut(groups, np.isin(names, groups))


def random_folds(
    groups: Sequence[str], count: int, random: int | np.random.Generator
) -> list[tuple[str, ...]]:
    """The groups' names, each once, at random in at most `count` folds as equal as can be; none is empty."""
    order = np.random.default_rng(random).permutation(sorted(set(groups)))
    return [tuple(fold.tolist()) for fold in np.array_split(order, min(count, len(order)))]


def predict_unseen(
    labels: Labels,
    predict: Callable[[HeldOut], Sequence[Array]],
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[Array, ...]:
    """Leave-one-group-out predictions of every row, for every quantity that `predict` returns.

    `predict` fits on the fold's training rows and returns arrays with one value per held-out row.
    """
    found: list[Array] = []
    for fold in leave_one_group_out(labels):
        parts = predict(fold)
        found = found or [np.full(len(fold.rows), np.nan) for _ in parts]
        for whole, part in zip(found, parts, strict=True):
            whole[fold.rows] = part
        progress(fold.groups[0])
    return tuple(found)


def predict_unseen_pairs(
    labels: Labels,
    predict: Callable[[HeldOut], Sequence[Array]],
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, tuple[Array, ...]]:
    """By group: leave-two-groups-out predictions of all other groups' rows, by fits that saw neither group.

    This is what can be known of errors without ever seeing that group; its own rows are NaN. `predict` fits
    on the fold's training rows and returns arrays with one value per held-out row.
    """
    names = np.asarray(labels)
    found: dict[str, tuple[Array, ...]] = {}
    for fold in leave_two_groups_out(labels):
        parts = predict(fold)
        for unseen, scored in (fold.groups, fold.groups[::-1]):
            if unseen not in found:
                found[unseen] = tuple(np.full(len(names), np.nan) for _ in parts)
            for whole, part in zip(found[unseen], parts, strict=True):
                whole[names == scored] = part[names[fold.rows] == scored]
        progress(" and ".join(fold.groups))
    return found
