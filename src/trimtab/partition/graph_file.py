"""Graphs from a JSON file (docs/reference/graph-files.md), an ONNX model, or a function that builds one."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, Strict

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    Number,
    StrictModel,
    did_you_mean,
    one_line,
    validate,
)
from trimtab.kernel import write_whole
from trimtab.partition.graph import KINDS, NODE_COLUMNS, Floats, Graph, Ints, Tie, in_order

if TYPE_CHECKING:
    from trimtab.partition.capture.capturing import Captured

_FREE = ("input", "output", "view")


def write_graph(graph: Graph, path: Path | str) -> None:
    """Write all of `graph` to a file that `read_graph` reads."""
    nodes = [
        {"name": graph.names[n], "block": graph.blocks[n], "kind": graph.kinds[n]}
        | {name: float(getattr(graph, name)[n]) for name in NODE_COLUMNS}
        for n in range(len(graph))
    ]
    readers: list[list[str]] = [[] for _ in graph.producer]
    for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
        readers[tensor].append(graph.names[node])
    tensors = [
        {"from": graph.names[maker], "to": to, "bytes": size}
        for maker, to, size in zip(graph.producer.tolist(), readers, graph.size.tolist(), strict=True)
    ]
    ties = [{"nodes": [graph.names[n] for n in t.nodes], "parameters": t.parameters} for t in graph.ties]
    file = {"name": graph.name, "element": graph.element, "nodes": nodes, "tensors": tensors, "ties": ties}
    write_whole(Path(path), json.dumps(file, indent=1) + "\n")


def _kind(value: Any) -> Any:
    if value not in KINDS:
        raise ValueError(
            f"there is no such kind{did_you_mean(str(value), KINDS)}; there are {', '.join(KINDS)}"
        )
    return value


_Text = Annotated[str, Strict()]
_Amount = Annotated[Number, Field(ge=0)]


class _NodeEntry(StrictModel):
    """One operation; missing amounts follow from the tensors that it reads and writes."""

    name: Annotated[_Text, Field(min_length=1)]
    block: _Text = ""
    kind: Annotated[_Text, BeforeValidator(_kind)] = "elementwise"
    calls: _Amount = math.nan
    flop: _Amount = 0.0
    traffic: _Amount = math.nan
    parameters: _Amount = 0.0
    buffers: _Amount = 0.0
    saved: _Amount = math.nan
    split: Annotated[Number, Field(ge=0, le=1)] = 0.0
    reduced_forward: _Amount = 0.0
    reduced_backward: _Amount = 0.0


class _Carried(StrictModel):
    source: _Text = Field(alias="from")
    bytes: _Amount


class _TensorEntry(_Carried):
    """One tensor and all nodes that read it."""

    to: list[_Text] = Field(default_factory=list)


class _EdgeEntry(_Carried):
    """One tensor that one node reads."""

    to: _Text


class _TieEntry(StrictModel):
    nodes: list[_Text]
    parameters: _Amount


class _GraphFile(StrictModel):
    nodes: Annotated[list[_NodeEntry], Field(min_length=1)]
    name: _Text = ""
    element: Annotated[Number, Field(ge=1)] = 4.0
    tensors: list[_TensorEntry] = Field(default_factory=list)
    edges: list[_EdgeEntry] = Field(default_factory=list)
    ties: list[_TieEntry] = Field(default_factory=list)


def read_graph(path: Path | str) -> Graph:
    """The graph in a file; nodes may come in any order, but not in a cycle."""
    where = str(path)
    file = validate(_GraphFile, _loaded(Path(path)), where)
    names = [node.name for node in file.nodes]
    number = {name: n for n, name in enumerate(names)}
    if len(number) < len(names):
        twice = next(name for n, name in enumerate(names) if number[name] != n)
        raise BadInputError(f'{where}: two nodes are called "{one_line(twice)}"; give each its own name')
    entries: list[tuple[str, _Carried, list[str]]] = []
    entries += [(f"{where}: tensors[{n}]", tensor, tensor.to) for n, tensor in enumerate(file.tensors)]
    entries += [(f"{where}: edges[{n}]", edge, [edge.to]) for n, edge in enumerate(file.edges)]
    readers = [[*dict.fromkeys(_node(name, number, f"{at}.to") for name in to)] for at, _, to in entries]
    producer = np.array([_node(entry.source, number, f"{at}.from") for at, entry, _ in entries], np.int64)
    size = np.array([entry.bytes for _, entry, _ in entries], dtype=np.float64)
    used = np.array([t for t, nodes in enumerate(readers) for _ in nodes], dtype=np.int64)
    user = np.array([node for nodes in readers for node in nodes], dtype=np.int64)
    order = in_order(producer[used], user, len(names), names, where)
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    read, written = np.zeros(len(names)), np.zeros(len(names))
    np.add.at(read, user, size[used])
    np.add.at(written, producer, size)
    columns = _columns(file.nodes, read, written)
    return Graph(
        name=file.name if "name" in file.model_fields_set else Path(path).stem,
        names=tuple(names[n] for n in order),
        blocks=tuple(file.nodes[n].block for n in order),
        kinds=tuple(file.nodes[n].kind for n in order),
        **{name: column[order] for name, column in columns.items()},
        producer=place[producer],
        size=size,
        used=used,
        user=place[user],
        ties=tuple(_ties(file, number, place, where)),
        element=file.element,
    )


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}; name a JSON graph file") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not valid JSON: {one_line(str(error))}") from None


def _node(name: str, number: Mapping[str, int], where: str) -> int:
    if name not in number:
        raise BadInputError(f'{where}: no node is called "{one_line(name)}"{did_you_mean(name, number)}')
    return number[name]


def _columns(nodes: Sequence[_NodeEntry], read: Floats, written: Floats) -> dict[str, Floats]:
    """The numbers of all nodes; traffic and saved default to the bytes that a node reads and writes."""
    free = np.array([node.kind in _FREE for node in nodes])
    defaults = {"calls": np.where(free, 0.0, 1.0)}
    defaults["traffic"], defaults["saved"] = np.where(free, 0.0, read + written), np.where(free, 0.0, written)
    columns = {name: np.array([getattr(node, name) for node in nodes], dtype=float) for name in NODE_COLUMNS}
    return {
        name: np.where(np.isnan(column), defaults[name], column) if name in defaults else column
        for name, column in columns.items()
    }


def _ties(file: _GraphFile, number: Mapping[str, int], place: Ints, where: str) -> Iterator[Tie]:
    for n, entry in enumerate(file.ties):
        at = f"{where}: ties[{n}]"
        tied = {_node(name, number, f"{at}.nodes") for name in entry.nodes}
        if len(tied) < 2:
            raise BadInputError(f"{at}.nodes: weights are shared by at least two different nodes")
        if any(file.nodes[node].parameters < entry.parameters for node in tied):
            raise BadInputError(
                f"{at}: a node cannot share more weights ({entry.parameters:g}) than its own parameters"
            )
        yield Tie(tuple(sorted(int(place[node]) for node in tied)), entry.parameters)


def load_graph(target: str, batch: int = 1) -> Graph:
    """The graph of `target`; `batch` replaces the open first dimensions of an ONNX model's inputs."""
    if target.endswith(".onnx"):
        from trimtab.partition.capture.onnx_file import read_onnx

        return read_onnx(target, batch)
    if target.endswith(".json"):
        return read_graph(target)
    return load_target(target).graph


def load_target(target: str) -> "Captured":
    """The graph of a builder such as `model.py:build`, with the trace that it comes from."""
    try:
        from trimtab.partition.capture.builder import load_builder
        from trimtab.partition.capture.capturing import capture_model
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            f"{target} builds a PyTorch model: pip install 'trimtab[learn]'"
        ) from None
    built = load_builder(target)
    return capture_model(built.model, built.inputs, built.name)
