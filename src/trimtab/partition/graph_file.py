"""A graph as a JSON file that people and programs can write; docs/graph-files.md describes the format."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    did_you_mean,
    one_line,
    quoted,
    refuse_unknown,
)
from trimtab.kernel import write_whole
from trimtab.partition.graph import KINDS, Floats, Graph, Ints, Tie, in_order

if TYPE_CHECKING:
    from trimtab.partition.capture.capturing import Captured

_NUMBERS = (
    "calls",
    "flop",
    "traffic",
    "parameters",
    "buffers",
    "saved",
    "split",
    "reduced_forward",
    "reduced_backward",
)
_TOP = ("name", "element", "nodes", "tensors", "edges", "ties")
_FREE = ("input", "output", "view")


def write_graph(graph: Graph, path: Path | str) -> None:
    """Write all of `graph` to a file that `read_graph` reads."""
    nodes = [
        {"name": graph.names[n], "block": graph.blocks[n], "kind": graph.kinds[n]}
        | {name: float(getattr(graph, name)[n]) for name in _NUMBERS}
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
    whole = {"name": graph.name, "element": graph.element, "nodes": nodes, "tensors": tensors, "ties": ties}
    write_whole(Path(path), json.dumps(whole, indent=1) + "\n")


def read_graph(path: Path | str) -> Graph:
    """The graph in a file; nodes may come in any order, but not in a cycle."""
    where = str(path)
    whole = _object(_loaded(Path(path)), where)
    refuse_unknown(where, whole, _TOP)
    nodes = [_object(node, f"{where}: node {n}") for n, node in enumerate(_list(whole, "nodes", where))]
    names = _names(nodes, where)
    number = {name: n for n, name in enumerate(names)}
    carried = _carried(whole, number, where)
    producer = np.array([maker for maker, _, _ in carried], dtype=np.int64)
    size = np.array([size for _, _, size in carried], dtype=np.float64)
    used = np.array([t for t, (_, to, _) in enumerate(carried) for _ in to], dtype=np.int64)
    user = np.array([reader for _, to, _ in carried for reader in to], dtype=np.int64)
    order = in_order(producer[used], user, len(names), names, where)
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    columns = _columns(nodes, names, _moved(producer, size, used, user, len(names)), where)
    return Graph(
        name=_text(whole, "name", where, Path(path).stem),
        names=tuple(names[n] for n in order),
        blocks=tuple(_text(nodes[n], "block", _at(where, names[n]), "") for n in order),
        kinds=tuple(_kind(nodes[n], _at(where, names[n])) for n in order),
        **{name: column[order] for name, column in columns.items()},
        producer=place[producer],
        size=size,
        used=used,
        user=place[user],
        ties=_ties(whole, number, place, columns["parameters"], where),
        element=_number(whole, "element", where, 4.0, least=1.0),
    )


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}; name a JSON graph file") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is no JSON: {one_line(str(error))}") from None


def _names(nodes: list[Mapping[str, Any]], where: str) -> list[str]:
    names: list[str] = []
    for n, node in enumerate(nodes):
        refuse_unknown(f"{where}: node {n}", node, ("name", "block", "kind", *_NUMBERS))
        names.append(_text(node, "name", f"{where}: node {n}", None))
    if not names:
        raise BadInputError(f'{where}: "nodes" is empty; there is nothing to split')
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInputError(f'{where}: two nodes are called "{one_line(name)}"; give each its own name')
        seen.add(name)
    return names


def _carried(
    whole: Mapping[str, Any], number: Mapping[str, int], where: str
) -> list[tuple[int, list[int], float]]:
    """Every tensor: who makes it, who reads it, and its bytes."""
    result = []
    for field in ("tensors", "edges"):
        for n, told in enumerate(_list(whole, field, where, optional=True)):
            at = f"{where}: {field}[{n}]"
            item = _object(told, at)
            refuse_unknown(at, item, ("from", "to", "bytes"))
            to = item.get("to", [] if field == "tensors" else None)
            if field == "tensors" and not isinstance(to, list):
                raise BadInputError(f'{at}: "to" should be a list of nodes, not {quoted(to)}')
            readers = [_node(name, number, at) for name in (to if field == "tensors" else [to])]
            maker = _node(item.get("from"), number, at)
            result.append((maker, [*dict.fromkeys(readers)], _number(item, "bytes", at)))
    return result


def _ties(
    whole: Mapping[str, Any], number: Mapping[str, int], place: Ints, parameters: Floats, where: str
) -> tuple[Tie, ...]:
    ties = []
    for n, told in enumerate(_list(whole, "ties", where, optional=True)):
        at = f"{where}: ties[{n}]"
        item = _object(told, at)
        refuse_unknown(at, item, ("nodes", "parameters"))
        tied = [_node(name, number, at) for name in _list(item, "nodes", at)]
        shared = _number(item, "parameters", at)
        if len(set(tied)) < 2:
            raise BadInputError(f"{at}: weights are shared by at least two different nodes")
        if (parameters[tied] < shared).any():
            raise BadInputError(
                f"{at}: a node cannot share more weights ({shared:g}) than its own parameters"
            )
        ties.append(Tie(tuple(sorted(int(place[node]) for node in set(tied))), shared))
    return tuple(ties)


def _columns(
    nodes: list[Mapping[str, Any]], names: list[str], moved: tuple[Floats, Floats], where: str
) -> dict[str, Floats]:
    """The numbers of all nodes; what is not told is taken from the tensors that a node reads and writes."""
    read, written = moved
    columns = {name: np.zeros(len(nodes)) for name in _NUMBERS}
    for n, node in enumerate(nodes):
        at = _at(where, names[n])
        free = _kind(node, at) in _FREE
        untold = {"calls": 1.0, "traffic": read[n] + written[n], "saved": written[n]}
        for name in _NUMBERS:
            default = 0.0 if free else untold.get(name, 0.0)
            columns[name][n] = _number(node, name, at, default, most=1.0 if name == "split" else math.inf)
    return columns


def _moved(producer: Ints, size: Floats, used: Ints, user: Ints, count: int) -> tuple[Floats, Floats]:
    """Bytes that each node reads, and bytes that it writes."""
    read, written = np.zeros(count), np.zeros(count)
    np.add.at(read, user, size[used])
    np.add.at(written, producer, size)
    return read, written


def _at(where: str, name: str) -> str:
    return f'{where}: node "{one_line(name)}"'


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInputError(f"{where} should be an object with names and values, not {quoted(value)}")
    return value


def _list(told: Mapping[str, Any], name: str, where: str, optional: bool = False) -> list[Any]:
    value = told.get(name, [] if optional else None)
    if not isinstance(value, list):
        raise BadInputError(f'{where}: "{name}" should be a list, not {quoted(value)}')
    return value


def _text(told: Mapping[str, Any], name: str, where: str, default: str | None) -> str:
    value = told.get(name, default)
    if not isinstance(value, str) or (default is None and not value):
        raise BadInputError(f'{where}: "{name}" should be text, not {quoted(value)}')
    return value


def _kind(node: Mapping[str, Any], where: str) -> str:
    kind = _text(node, "kind", where, "elementwise")
    if kind not in KINDS:
        near = did_you_mean(kind, KINDS)
        raise BadInputError(
            f'{where}: there is no kind "{one_line(kind)}"{near}; there are {", ".join(KINDS)}'
        )
    return kind


def _node(name: Any, number: Mapping[str, int], where: str) -> int:
    if not isinstance(name, str):
        raise BadInputError(f"{where} should name a node, not {quoted(name)}")
    if name not in number:
        raise BadInputError(f'{where}: no node is called "{one_line(name)}"{did_you_mean(name, number)}')
    return number[name]


def _number(
    told: Mapping[str, Any],
    name: str,
    where: str,
    default: float | None = None,
    least: float = 0.0,
    most: float = math.inf,
) -> float:
    value = told.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f'{where}: "{name}" should be a number, not {quoted(value)}')
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not least <= number <= most:
        limits = f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
        raise BadInputError(f'{where}: "{name}" is {quoted(value)}; it should be a finite number, {limits}')
    return number


def load_graph(target: str, batch: int = 1) -> Graph:
    """The graph of `target`; `batch` stands in for dimensions that an ONNX model leaves open."""
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
