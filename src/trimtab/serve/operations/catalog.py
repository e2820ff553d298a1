"""Offers and accelerators of the catalog, and the versions of the models that predict."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trimtab.catalog import Accelerator
from trimtab.core import DEFAULT_TENANT, NotFoundError, Offer, TrimtabError
from trimtab.serve.operations.operation import Area, Limit, ShortText, operation
from trimtab.store import Page, Role, StateConflictError

if TYPE_CHECKING:
    from trimtab.catalog import OfferTable

SORT_COLUMNS = {
    "price": "price",
    "spot": "spot_price",
    "vcpus": "vcpus",
    "memory": "memory",
    "accelerators": "accelerators",
    "network": "network",
}
"""Columns of the offers' table by the names that offers can be sorted by."""

Names = Annotated[Sequence[str], Field(max_length=100)]


class CatalogOperations(Area, name="catalog"):
    """Offers, cheapest first, and accelerators; equal for every tenant."""

    __slots__ = ()

    @operation("GET", "/v1/catalog/offers", slow=True)
    def offers(
        self,
        limit: Limit = 50,
        after: Annotated[
            str | None, Field(pattern="^[0-9]{1,9}$", description="The `next` of the page before.")
        ] = None,
        cloud: Annotated[Sequence[str], Field(max_length=20, description="May hold wildcards.")] = (),
        region: Names = (),
        accelerator: Names = (),
        min_memory: Annotated[float | None, Field(description="Bytes of the host.", ge=0)] = None,
        min_accelerators: Annotated[int | None, Field(ge=0, le=10**6)] = None,
        max_price: Annotated[float | None, Field(description="Dollars per second.", ge=0)] = None,
        spot: bool = False,
    ) -> Page[Offer]:
        """Offers, cheapest first; names may hold wildcards."""
        from trimtab.catalog import load_offers

        start = int(after or 0)
        try:
            offers = find_offers(
                load_offers(),
                "spot" if spot else "price",
                cloud=[*cloud] or None,
                region=[*region] or None,
                accelerator=[*accelerator] or None,
                min_memory=min_memory,
                min_accelerators=min_accelerators,
                max_price=max_price,
                spot=spot or None,
            )
        except NotFoundError:  # no accelerator is called so
            return Page(())
        rows = offers.select(range(start, min(len(offers), start + limit)))
        more = start + limit < len(offers)
        return Page(tuple(rows.offers()), str(start + limit) if more else None)

    @operation("GET", "/v1/catalog/accelerators", slow=True)
    def accelerators(self) -> tuple[Accelerator, ...]:
        """Accelerators, as their vendors publish them; by vendor, then age."""
        from trimtab.catalog import accelerators

        return tuple(accelerators())

    @operation("GET", "/v1/catalog/accelerators/{name}", slow=True, tagged=True)
    def accelerator(self, name: str) -> Accelerator:
        """One accelerator, by any usual name."""
        from trimtab.catalog import accelerator

        return accelerator(name)


def find_offers(everything: "OfferTable", sort: str = "price", **conditions: Any) -> "OfferTable":
    """Offers that meet the conditions of `OfferTable.where`: cheapest first by a price, else largest first.

    `sort` is one of `SORT_COLUMNS`; offers without that price come last.
    """
    offers = everything.where(**conditions)
    column = getattr(offers, SORT_COLUMNS[sort])
    return offers.select((column if "price" in SORT_COLUMNS[sort] else -column).argsort(kind="stable"))


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of the weights: when it was made (None: it came with Trimtab), its parent, and its backtest.

    `errors` are mean errors on held-out applications, by data set, by rule or model, and by known runs.
    `problem` says why the version cannot be used, if so.
    """

    name: str
    current: bool
    made: float | None
    parent: str
    outcomes: int
    comparisons: tuple[dict[str, Any], ...]
    errors: dict[str, dict[str, dict[str, float]]]
    problem: str = ""


class ModelOperations(Area, name="models"):
    """Versions of the models, which all tenants share and which hold no tenant's data."""

    __slots__ = ()

    @operation("GET", "/v1/models", slow=True)
    def list(self) -> tuple[ModelVersion, ...]:
        """Versions of the weights, oldest first, and how they were tested."""
        from trimtab.predict import Versions

        versions = Versions()
        try:
            current = versions.current.name
        except TrimtabError:
            current = ""
        return tuple(_version(versions, name, name == current) for name in versions.names)

    @operation("POST", "/v1/models/rollback", least=Role.OPERATOR, fleet=True, status=200)
    def rollback(self, version: ShortText = None) -> ModelVersion:
        """Let an earlier version answer again: the one named, else the parent of the current one."""
        from trimtab.predict import Versions

        versions = Versions()

        def effect() -> str:
            with versions.alone():
                current = versions.current.name
                earlier = version or versions.before(current)
                if earlier == current:
                    raise StateConflictError(f"{current} is the current version already")
                versions.make_current(earlier, self.backend.clock.now())
            return earlier

        name = self.write("models.rollback", DEFAULT_TENANT, effect, lambda name: (name, {"version": name}))
        return _version(versions, name, True)


_loading = threading.Lock()
_versions: dict[tuple[str, str], ModelVersion] = {}


def _version(versions: Any, name: str, current: bool) -> ModelVersion:
    """Description of a version; read once, since its file never changes."""
    key = (str(versions.folder), name)
    with _loading:
        if key not in _versions:
            try:
                _versions[key] = _describe(versions.load(name), name)
            except TrimtabError as error:
                return ModelVersion(name, current, None, "", 0, (), {}, str(error))
    return replace(_versions[key], current=current)


def _describe(foundation: Any, name: str) -> ModelVersion:
    about = foundation.card.get("version", {})
    errors = {
        corpus: {who: {str(runs): error for runs, error in by.items()} for who, by in fitted.errors.items()}
        for corpus, fitted in foundation.predictors.items()
    }
    return ModelVersion(
        name,
        False,
        about.get("made"),
        str(about.get("parent", "")),
        len(about.get("outcomes", ())),
        tuple(map(dict, about.get("comparisons", ()))),
        errors,
    )
