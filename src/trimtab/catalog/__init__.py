"""What can I rent, what is it made of, what does it cost? Accelerator facts, offers, imported price lists."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.catalog.accelerators import (
    FORMATS,
    Accelerator,
    Interconnect,
    accelerator,
    accelerators,
    find_accelerator,
)

if TYPE_CHECKING:
    from trimtab.catalog.archive import load_archive, save_offers
    from trimtab.catalog.importing import ImportReport, import_offers
    from trimtab.catalog.offers import load_offers
    from trimtab.catalog.strings import Strings
    from trimtab.catalog.table import OfferTable

__all__ = [
    "FORMATS",
    "Accelerator",
    "ImportReport",
    "Interconnect",
    "OfferTable",
    "Strings",
    "accelerator",
    "accelerators",
    "find_accelerator",
    "import_offers",
    "load_archive",
    "load_offers",
    "save_offers",
]

# Those below need NumPy, which whoever only asks for accelerator facts should not wait for.
_LAZY = {
    "ImportReport": "importing",
    "OfferTable": "table",
    "Strings": "strings",
    "import_offers": "importing",
    "load_archive": "archive",
    "load_offers": "offers",
    "save_offers": "archive",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
