"""From what a user names to a graph: a builder, a JSON graph file, or an ONNX model."""

from typing import TYPE_CHECKING

from trimtab.core import MissingDependencyError
from trimtab.partition.graph import Graph

if TYPE_CHECKING:
    from trimtab.partition.capture.capturing import Captured


def load_graph(target: str, batch: int = 1) -> Graph:
    """The graph of `target`; `batch` stands in for dimensions that an ONNX model leaves open."""
    if target.endswith(".onnx"):
        from trimtab.partition.capture.onnx_file import read_onnx

        return read_onnx(target, batch)
    if target.endswith(".json"):
        from trimtab.partition.graph_file import read_graph

        return read_graph(target)
    return load_target(target).graph


def load_target(target: str) -> "Captured":
    """The graph of a builder such as `model.py:build`, with the trace that it comes from."""
    try:
        from trimtab.partition.capture.builder import load_builder
        from trimtab.partition.capture.capturing import capture
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            f"{target} builds a PyTorch model: pip install 'trimtab[learn]'"
        ) from None
    built = load_builder(target)
    return capture(built.model, built.inputs, built.name)
