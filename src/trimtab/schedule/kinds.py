"""One name for each kind of accelerator, however people and drivers spell it."""

from functools import cache

from trimtab.catalog import find_accelerator

_DENSE = ("bf16", "fp16", "tf32", "fp32")


@cache
def kind_of(name: str) -> str:
    """The catalog's name in small letters, or the name as it is where the catalog has none."""
    known = find_accelerator(name) if name else None
    return (known.name if known else name.strip()).lower()


@cache
def peak(kind: str) -> float | None:
    """FLOP per second of one at its best in training; None where nobody has published it."""
    known = find_accelerator(kind) if kind else None
    rates = [known.peak[each] for each in _DENSE if each in known.peak] if known else []
    return max(rates, default=None)
