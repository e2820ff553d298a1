"""What can I rent, what is it made of, what does it cost? Accelerator facts, offers, imported price lists."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.catalog.hardware import (
    FORMATS,
    Accelerator,
    Interconnect,
    accelerator,
    accelerators,
    find_accelerator,
)

if TYPE_CHECKING:
    from trimtab.catalog.archive import load_table, save_table
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
    "load_offers",
    "load_table",
    "save_table",
]

# Those below need NumPy, which whoever only asks for accelerator facts should not wait for.
_LAZY = {
    "ImportReport": "importing",
    "OfferTable": "table",
    "Strings": "strings",
    "import_offers": "importing",
    "load_table": "archive",
    "load_offers": "offers",
    "save_table": "archive",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
