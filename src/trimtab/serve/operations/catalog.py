"""The catalog of what can be rented, and the versions of the models that predictions come from."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trimtab.catalog import Accelerator
from trimtab.core import BadInputError, NotFoundError, Offer, TrimtabError
from trimtab.serve.access import DEFAULT_TENANT
from trimtab.serve.operations.operation import After, Area, Limit, ShortText, operation
from trimtab.store import Page, Role

if TYPE_CHECKING:
    from trimtab.catalog import OfferTable

Names = Annotated[Sequence[str], Field(max_length=100)]


class Catalog(Area, name="catalog"):
    """Offers, cheapest first, and accelerators; the same for every tenant."""

    __slots__ = ()

    @operation("GET", "/v1/catalog/offers", slow=True)
    def offers(
        self,
        limit: Limit = 50,
        after: After = None,
        cloud: Annotated[Sequence[str], Field(max_length=20, description="May hold wildcards.")] = (),
        region: Names = (),
        accelerator: Names = (),
        min_memory: Annotated[float | None, Field(description="Bytes of the host.", ge=0)] = None,
        min_accelerators: Annotated[int | None, Field(ge=0, le=10**6)] = None,
        max_price: Annotated[float | None, Field(description="Dollars per second.", ge=0)] = None,
        spot: bool = False,
    ) -> Page[Offer]:
        """Offers, cheapest first; names may hold wildcards."""
        found = _matching(
            cloud=[*cloud] or None,
            region=[*region] or None,
            accelerator=[*accelerator] or None,
            min_memory=min_memory,
            min_accelerators=min_accelerators,
            max_price=max_price,
            spot=spot or None,
        )
        start = _position(after)
        rows = found.select(range(start, min(len(found), start + limit)))
        more = start + limit < len(found)
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


def _matching(**conditions: Any) -> "OfferTable":
    """Offers that meet the conditions, cheapest first; a name that no accelerator has finds none."""
    import numpy as np

    from trimtab.catalog import load_offers

    everything = load_offers()
    try:
        found = everything.where(**conditions)
    except NotFoundError:
        return everything.select([])
    return found.select(np.argsort(found.spot_price if conditions["spot"] else found.price, kind="stable"))


def _position(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) < 10):
        raise BadInputError(
            f'no list goes on after "{after:.80}"; give what the page before has under `next`'
        )
    return int(after)


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of the weights: when it was made (None: it came with Trimtab), its parent, and its backtest.

    `errors` are mean errors on applications left out, by data set, by who answered and by known runs.
    `problem` is a sentence where the version cannot be used.
    """

    name: str
    current: bool
    made: float | None
    parent: str
    outcomes: int
    comparisons: tuple[dict[str, Any], ...]
    errors: dict[str, dict[str, dict[str, float]]]
    problem: str = ""


class Models(Area, name="models"):
    """Models concern everybody alike, and nothing in them tells of a tenant."""

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
                wanted = version or versions.before(current)
                if wanted == current:
                    raise BadInputError(f"{current} is the current version already")
                versions.make_current(wanted, self.backend.clock.now())
            return wanted

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
        tuple(dict(each) for each in about.get("comparisons", ())),
        errors,
    )
