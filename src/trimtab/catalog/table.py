"""Offers as immutable NumPy columns, and their file."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog.hardware import find_accelerator
from trimtab.core import NotFoundError, Offer, StorageError
from trimtab.kernel import write_whole


def is_pattern(name: str) -> bool:
    """Whether `name` has a wildcard in it."""
    return any(character in name for character in "*?[")


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """A dictionary-encoded column: row i is `vocabulary[codes[i]]`; an empty string means none."""

    codes: NDArray[np.int32]
    vocabulary: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> "Strings":
        """Encode `values`; the vocabulary is in order of appearance."""
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(v, len(index)) for v in values), dtype=np.int32)
        return cls(codes, tuple(index))

    def __post_init__(self) -> None:
        self.codes.setflags(write=False)

    def values(self) -> list[str]:
        """The column as plain strings."""
        return [self.vocabulary[code] for code in self.codes.tolist()]

    def matches(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """A mask of the rows with one of `names`, in any case; wildcards allowed."""
        lower = [name.lower() for name in names]
        plain = {name for name in lower if not is_pattern(name)}
        patterns = [name for name in lower if name not in plain]
        matching = [
            v in plain or any(fnmatchcase(v, p) for p in patterns) for v in map(str.lower, self.vocabulary)
        ]
        return np.array([*matching, False])[self.codes]


STRINGS = ("cloud", "region", "instance", "accelerator")
NUMBERS = ("vcpus", "memory", "price", "spot_price", "network")

Names = str | Sequence[str]
"""One name or several; `*`, `?` and `[…]` are wildcards."""


@dataclass(frozen=True, slots=True, eq=False)
class OfferTable:
    """Offers as columns, in the units of `Offer`: bytes, bytes/s, $/s; `price_date` in days.

    Without a spot price `spot_price` is NaN, without an accelerator `accelerator` is "".
    """

    cloud: Strings
    region: Strings
    instance: Strings
    accelerator: Strings
    vcpus: NDArray[np.float64]
    memory: NDArray[np.float64]
    accelerators: NDArray[np.int32]
    price: NDArray[np.float64]
    spot_price: NDArray[np.float64]
    network: NDArray[np.float64]
    price_date: NDArray[np.datetime64]

    @classmethod
    def from_offers(cls, offers: Iterable[Offer]) -> "OfferTable":
        """A table with one row per offer, in the same order."""
        rows = list(offers)
        columns: dict[str, Any] = {n: Strings.of(getattr(o, n) or "" for o in rows) for n in STRINGS}
        # None becomes NaN.
        columns |= {n: np.array([getattr(o, n) for o in rows], dtype=np.float64) for n in NUMBERS}
        accelerators = np.array([o.accelerators for o in rows], dtype=np.int32)
        dates = np.array([o.price_date for o in rows], dtype="datetime64[D]")
        return cls(**columns, accelerators=accelerators, price_date=dates)

    def __post_init__(self) -> None:
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.price)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.offers())

    def __getitem__(self, row: int) -> Offer:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a table of {len(self)} offers")
        return self.select(np.array([row])).offers()[0]

    def offers(self) -> list[Offer]:
        """Every row as an `Offer`."""
        columns: dict[str, list[Any]] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            columns[field.name] = column.values() if isinstance(column, Strings) else column.tolist()
        columns["accelerator"] = [name or None for name in columns["accelerator"]]
        columns["spot_price"] = [None if price != price else price for price in columns["spot_price"]]
        rows = zip(*(columns[field.name] for field in fields(Offer)), strict=True)
        return [Offer(*row) for row in rows]

    def select(self, rows: NDArray[Any] | Sequence[int]) -> "OfferTable":
        """The rows of a Boolean mask, or the numbered rows in that order; vocabularies are not reduced."""
        chosen = np.asarray(rows)
        if chosen.dtype != np.bool_:
            chosen = chosen.astype(np.intp)
        columns: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            strings = isinstance(column, Strings)
            columns[field.name] = replace(column, codes=column.codes[chosen]) if strings else column[chosen]
        return OfferTable(**columns)

    def where(
        self,
        *,
        cloud: Names | None = None,
        region: Names | None = None,
        instance: Names | None = None,
        accelerator: Names | None = None,
        min_vcpus: float | None = None,
        min_memory: float | None = None,
        min_accelerators: int | None = None,
        max_price: float | None = None,
        spot: bool | None = None,
    ) -> "OfferTable":
        """The offers that meet every condition; host memory in bytes, price in $/s.

        With `spot`, only offers that have a spot price, and `max_price` is about that one.
        """
        keep = np.ones(len(self), dtype=np.bool_)
        if accelerator is not None:
            names = [accelerator] if isinstance(accelerator, str) else accelerator
            accelerator = [self._accelerator_name(name) for name in names]
        matched = {"cloud": cloud, "region": region, "instance": instance, "accelerator": accelerator}
        for column, chosen in matched.items():
            if chosen is not None:
                keep &= getattr(self, column).matches([chosen] if isinstance(chosen, str) else chosen)
        if min_vcpus is not None:
            keep &= self.vcpus >= min_vcpus
        if min_memory is not None:
            keep &= self.memory >= min_memory
        if min_accelerators is not None:
            keep &= self.accelerators >= min_accelerators
        price = self.spot_price if spot else self.price
        if spot:
            keep &= ~np.isnan(price)
        if max_price is not None:
            keep &= price <= max_price
        return self.select(keep)

    def concat(self, *others: "OfferTable") -> "OfferTable":
        """This table's rows followed by those of `others`."""
        tables = (self, *others)
        return OfferTable(**{f.name: _join([getattr(t, f.name) for t in tables]) for f in fields(self)})

    def _accelerator_name(self, name: str) -> str:
        known = find_accelerator(name)
        if known is not None:
            return known.name
        if is_pattern(name) or name.lower() in map(str.lower, self.accelerator.vocabulary):
            return name
        raise NotFoundError(
            f'no accelerator is called "{name}", neither among the known ones nor among the offers; '
            "`trimtab catalog ls --accelerators` lists them"
        )


def _join(columns: Sequence[Any]) -> Any:
    if not isinstance(columns[0], Strings):
        return np.concatenate(columns)
    index: dict[str, int] = {}
    for column in columns:
        for word in column.vocabulary:
            index.setdefault(word, len(index))
    maps = [np.array([index[w] for w in c.vocabulary], dtype=np.int32) for c in columns]
    codes = [m[c.codes] for m, c in zip(maps, columns, strict=True)]
    return Strings(np.concatenate(codes).astype(np.int32), tuple(index))


def save_table(table: OfferTable, path: Path) -> None:
    """Write `table` to `path` as .npz, atomically."""
    columns = [getattr(table, name) for name in STRINGS]
    days = table.price_date.astype("datetime64[D]").astype(np.int32)
    words = json.dumps([column.vocabulary for column in columns]).encode()
    arrays = {
        "numbers": np.stack([getattr(table, name) for name in NUMBERS]),
        "integers": np.stack([*(column.codes for column in columns), table.accelerators, days]),
        "words": np.frombuffer(words, dtype=np.uint8),
    }
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def load_table(path: Path) -> OfferTable:
    """The table that `save_table` wrote to `path`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            numbers, integers = arrays["numbers"], arrays["integers"]
            vocabularies = json.loads(arrays["words"].tobytes())
        *codes, accelerators, days = integers
        strings = [Strings(c, tuple(v)) for c, v in zip(codes, vocabularies, strict=True)]
        columns: dict[str, Any] = dict(zip((*STRINGS, *NUMBERS), (*strings, *numbers), strict=True))
        return OfferTable(**columns, accelerators=accelerators, price_date=days.astype("datetime64[D]"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"the imported offers in {path} cannot be read ({type(error).__name__}); "
            "import that provider again, or remove the file to return to the built-in offers"
        ) from None
