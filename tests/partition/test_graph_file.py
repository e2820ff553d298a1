"""Graphs in JSON files: what is written is read, and what is wrong is named."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError
from trimtab.partition import Graph, load_graph, read_graph, write_graph
from trimtab.partition.graph import Tie

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "graph-files.md"
COLUMNS = ("calls", "flop", "traffic", "parameters", "buffers", "saved", "split", "reduced_forward")


def uses(graph: Graph) -> list[tuple[int, int]]:
    return sorted(zip(graph.used.tolist(), graph.user.tolist(), strict=True))


def assert_same(one: Graph, other: Graph) -> None:
    for name in ("name", "names", "blocks", "kinds", "ties", "element"):
        assert getattr(one, name) == getattr(other, name)
    for name in (*COLUMNS, "reduced_backward", "producer", "size"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert uses(one) == uses(other)


def written(folder: Path, content: Any) -> Path:
    path = folder / "graph.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def chain(*edges: tuple[str, str], **first: Any) -> dict[str, Any]:
    nodes = [{"name": name} for name in ("a", "b", "c")]
    nodes[0] |= first
    return {"nodes": nodes, "edges": [{"from": one, "to": other, "bytes": 8} for one, other in edges]}


def test_what_is_written_is_read_again(tmp_path: Path, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(skip=True)
    write_graph(graph, tmp_path / "graph.json")
    assert_same(graph, read_graph(tmp_path / "graph.json"))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_graph_survives_the_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    numbers = st.lists(st.floats(0, 1e15), min_size=count, max_size=count).map(np.array)
    pairs = [(one, other) for other in range(count) for one in range(other)]
    drawn = sorted(data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12))) if pairs else []
    makers = sorted({maker for maker, _ in drawn})
    columns = {name: data.draw(numbers) for name in (*COLUMNS, "reduced_backward")}
    columns["split"] = columns["split"] / 1e15
    columns["parameters"] += 5.0
    graph = Graph(
        name=data.draw(st.text(min_size=1)),
        names=tuple(f"n{number}" for number in range(count)),
        blocks=("",) * count,
        kinds=("matmul",) * count,
        **columns,
        producer=np.array(makers, dtype=np.int64),
        size=np.ones(len(makers)),
        used=np.array([makers.index(maker) for maker, _ in drawn], dtype=np.int64),
        user=np.array([user for _, user in drawn], dtype=np.int64),
        ties=(Tie((0, count - 1), 5.0),) if count > 1 else (),
    )
    path = tmp_path_factory.mktemp("graph") / "graph.json"
    write_graph(graph, path)
    assert_same(graph, read_graph(path))


def test_the_documents_example_is_read(tmp_path: Path) -> None:
    example = re.search(r"```json\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    graph = read_graph(written(tmp_path, example[1]))
    assert graph.names == ("picture", "stem", "left", "right", "join", "answer")
    assert graph.total_parameters == 9408 + 147456
    join = graph.names.index("join")
    assert graph.traffic[join] == 2 * 6422528
    assert graph.saved[join] == 6422528
    assert graph.calls[graph.names.index("answer")] == 0
    assert len(graph.producer) == 5  # what both branches read is one tensor


def test_nodes_may_come_in_any_order(tmp_path: Path) -> None:
    graph = read_graph(written(tmp_path, chain(("c", "b"), ("b", "a"))))
    assert graph.names == ("c", "b", "a")
    assert uses(graph) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("content", "place", "value"),
    [
        ("{", "JSON", "line 1"),
        ("[" * 100_000, "JSON", ""),
        ([], "nodes", "[]"),
        ({}, "nodes", "missing"),
        ({"nodes": []}, "nodes", "[]"),
        ({"nodes": ["a"]}, "nodes[0]", "'a'"),
        ({"nodes": [{"kind": "conv"}]}, "nodes[0].name", "missing"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "two nodes", '"a"'),
        ({"nodes": [{"name": "a"}], "edgs": []}, '"edgs"', "did you mean edges"),
        (chain(flops=3), "nodes[0]", '"flops"'),
        (chain(kind="convolution"), "nodes[0].kind", "convolution"),
        (chain(flop=-1), "nodes[0].flop", "-1"),
        (chain(flop=float("nan")), "nodes[0].flop", "nan"),
        (chain(saved=float("inf")), "nodes[0].saved", "inf"),
        (chain(parameters=10**400), "nodes[0].parameters", "1000"),
        (chain(flop="3"), "nodes[0].flop", "'3'"),
        (chain(flop=True), "nodes[0].flop", "True"),
        (chain(calls=None), "nodes[0].calls", "None"),
        (chain(split=2), "nodes[0].split", "2"),
        (chain(("a", "b"), ("b", "c"), ("c", "a")), "cycle", "b → c"),
        (chain(("a", "a")), "cycle", "a → a"),
        (chain(("a", "d")), "edges[0].to", '"d"'),
        (chain() | {"edges": [{"from": "a", "to": "b"}]}, "edges[0].bytes", "missing"),
        (chain() | {"edges": [{"from": "a", "bytes": 1}]}, "edges[0].to", "missing"),
        (chain() | {"tensors": [{"from": "a", "to": "b", "bytes": 1}]}, "tensors[0].to", "'b'"),
        (chain() | {"ties": [{"nodes": ["a"], "parameters": 0}]}, "ties[0].nodes", "two different"),
        (chain() | {"ties": [{"nodes": ["a", "b"], "parameters": 9}]}, "ties[0]", "(9)"),
        (chain() | {"element": 0}, "element", "0"),
    ],
)
def test_a_mistake_is_refused_with_its_path_field_and_value(
    tmp_path: Path, content: Any, place: str, value: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInputError) as error:
        read_graph(path)
    assert str(error.value).startswith(str(path))
    assert place in str(error.value)
    assert value in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=re.escape(str(tmp_path / "none.json"))):
        read_graph(tmp_path / "none.json")
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_graph(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="JSON"):
        read_graph(tmp_path / "binary.json")


def test_a_graph_file_is_read_without_pytorch(tmp_path: Path, make_graph) -> None:  # type: ignore[no-untyped-def]
    write_graph(make_graph(), tmp_path / "graph.json")
    code = (
        "import sys; from trimtab.partition import load_graph;"
        f"print(len(load_graph({str(tmp_path / 'graph.json')!r})), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [str(len(make_graph())), "False"]


@pytest.mark.parametrize("name", ["none.json", "none.onnx", "none.py:build"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("torch")
    with pytest.raises(NotFoundError, match="none"):
        load_graph(str(tmp_path / name))
