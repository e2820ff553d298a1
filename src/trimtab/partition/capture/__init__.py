"""What is this model made of? A graph of what it computes and holds, taken without any of its memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.capture.builder import Built, builder_source, load_builder, resized
    from trimtab.partition.capture.capturing import Captured, arguments_of, capture, capture_model
    from trimtab.partition.capture.target import load_graph, load_target

__all__ = [
    "Built",
    "Captured",
    "arguments_of",
    "builder_source",
    "capture",
    "capture_model",
    "load_builder",
    "load_graph",
    "load_target",
    "resized",
]

_LAZY = {
    "Built": "builder",
    "builder_source": "builder",
    "Captured": "capturing",
    "arguments_of": "capturing",
    "capture": "capturing",
    "capture_model": "capturing",
    "load_builder": "builder",
    "load_graph": "target",
    "load_target": "target",
    "resized": "builder",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
