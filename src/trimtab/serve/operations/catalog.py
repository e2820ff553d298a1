"""The catalog: what can be rented, what it is made of, what it costs. The same for everybody."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.core import BadInputError, NotFoundError, Offer
from trimtab.serve.operations.desk import Area
from trimtab.store import Page

if TYPE_CHECKING:
    from trimtab.catalog import Accelerator, OfferTable

AREA = "catalog"


@dataclass(frozen=True, slots=True)
class WantedOffers:
    """Which offers: names may hold wildcards; memory in bytes, price in dollars per second."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    min_memory: float | None = None
    min_accelerators: int | None = None
    max_price: float | None = None
    spot: bool = False


class Catalog(Area):
    """Offers, cheapest first, and accelerators."""

    __slots__ = ()

    def offers(
        self, limit: int = 50, wanted: WantedOffers | None = None, after: str | None = None
    ) -> Page[Offer]:
        """A page of them."""
        self.principal.require(AREA)
        found = _found(wanted or WantedOffers())
        start = _place(after)
        rows = found.select(range(start, min(len(found), start + limit)))
        more = start + limit < len(found)
        return Page(tuple(rows.offers()), str(start + limit) if more else None)

    def accelerators(self) -> "Sequence[Accelerator]":
        """All whose facts are known."""
        from trimtab.catalog import accelerators

        self.principal.require(AREA)
        return accelerators()

    def accelerator(self, name: str) -> "Accelerator":
        """One, by any usual name."""
        from trimtab.catalog import accelerator

        self.principal.require(AREA)
        return accelerator(name)


def _found(wanted: WantedOffers) -> "OfferTable":
    """All that are wanted, sorted; a name that no accelerator has finds none."""
    import numpy as np

    from trimtab.catalog import load_offers

    everything = load_offers()
    try:
        found = everything.where(
            cloud=list(wanted.clouds) or None,
            region=list(wanted.regions) or None,
            accelerator=list(wanted.accelerators) or None,
            min_memory=wanted.min_memory,
            min_accelerators=wanted.min_accelerators,
            max_price=wanted.max_price,
            spot=wanted.spot or None,
        )
    except NotFoundError:
        return everything.select([])
    price = found.spot_price if wanted.spot else found.price
    return found.select(np.argsort(price, kind="stable"))


def _place(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) < 10):
        raise BadInputError(
            f'no list goes on after "{after:.80}"; give what the page before has under `next`'
        )
    return int(after)
