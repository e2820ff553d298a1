"""Backtests on labelled groups: predictions for groups (models, applications, jobs) by fits without them.

A group is held out completely: rows of one group err together, so a row scored by a fit that saw its siblings
would look better than a new group's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.tables import Array, Flags

Labels = Sequence[str] | NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """One fold: the names of the groups held out, and where their rows are."""

    groups: tuple[str, ...]
    rows: Flags

    @property
    def training(self) -> Flags:
        return ~self.rows


def leave_one_group_out(labels: Labels, together: int = 1) -> Iterator[HeldOut]:
    """Every group in turn, in order of appearance; or every set of so many groups `together`."""
    names = np.asarray(labels)
    for groups in combinations(dict.fromkeys(names.tolist()), together):
        yield HeldOut(groups, np.isin(names, groups))


def random_folds(
    groups: Sequence[str], count: int, random: int | np.random.Generator
) -> list[tuple[str, ...]]:
    """The groups' names, each once, at random in at most `count` folds of about equal size; none is empty."""
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
    predicted: list[Array] = []
    for fold in leave_one_group_out(labels):
        parts = predict(fold)
        predicted = predicted or [np.full(len(fold.rows), np.nan) for _ in parts]
        for all_rows, part in zip(predicted, parts, strict=True):
            all_rows[fold.rows] = part
        progress(fold.groups[0])
    return tuple(predicted)


def predict_unseen_pairs(
    labels: Labels,
    predict: Callable[[HeldOut], Sequence[Array]],
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, tuple[Array, ...]]:
    """By group: leave-two-groups-out predictions of all other groups' rows, by fits that saw neither group.

    These give the errors that can be known without ever seeing that group; its own rows are NaN. `predict` is
    that of `predict_unseen`; each fit scores both held-out groups.
    """
    names = np.asarray(labels)
    predicted: dict[str, tuple[Array, ...]] = {}
    for fold in leave_one_group_out(labels, together=2):
        parts = predict(fold)
        for unseen, scored in (fold.groups, fold.groups[::-1]):
            if unseen not in predicted:
                predicted[unseen] = tuple(np.full(len(names), np.nan) for _ in parts)
            for all_rows, part in zip(predicted[unseen], parts, strict=True):
                all_rows[names == scored] = part[names[fold.rows] == scored]
        progress(" and ".join(fold.groups))
    return predicted
