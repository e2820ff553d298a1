"""What is this model made of? A graph of what it computes and holds, taken without any of its memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.capture.builder import Built, load_builder, resized
    from trimtab.partition.capture.capturing import Captured, capture

__all__ = ["Built", "Captured", "capture", "load_builder", "resized"]

_LAZY = {
    "Built": "builder",
    "Captured": "capturing",
    "capture": "capturing",
    "load_builder": "builder",
    "resized": "builder",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
