"""ONNX models as graphs: shapes are inferred, weights are counted, what is open is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="reading an ONNX model needs the package onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from trimtab.core import BadInputError  # noqa: E402
from trimtab.partition import Graph, load_graph  # noqa: E402


def weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(np.ones(shape, dtype=np.float32), name)


def value(name: str, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def saved(path: Path, nodes: list[Any], weights: list[Any], shape: Any, output: str) -> str:
    graph = helper.make_graph(nodes, "net", [value("x", shape)], [value(output, None)], weights)
    onnx.save(helper.make_model(graph), path)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/stem/conv/Conv", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node(
            "BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"], "/stem/norm/N"
        ),
        helper.make_node("Relu", ["n"], ["r"], "/stem/Relu"),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "shared", "bias"], ["narrow"], transB=1),
        helper.make_node("MatMul", ["narrow", "shared"], ["wide"]),
        helper.make_node("Add", ["wide", "f"], ["y"]),
    ]
    weights = [weight("w", 4, 3, 3, 3), *(weight(n, 4) for n in ("scale", "shift", "mean", "variance"))]
    weights += [weight("shared", 10, 256), weight("bias", 10)]
    return saved(tmp_path / "net.onnx", nodes, weights, ["samples", 3, 8, 8], "y")


def node(graph: Graph, name: str) -> int:
    return graph.names.index(name)


def test_nodes_weights_and_tensors_are_read(model: str) -> None:
    graph = load_graph(model, batch=2)
    assert graph.name == "net"
    assert graph.kinds == (
        "input",
        "conv",
        "norm",
        "elementwise",
        "matmul",
        "matmul",
        "elementwise",
        "output",
    )
    assert graph.blocks[1] == "stem.conv"
    assert graph.flop[1] == 2 * 4 * 64 * 27
    assert graph.flop[4] == graph.flop[5] == 2 * 256 * 10
    assert graph.traffic[3] == 2 * 4 * 256
    assert graph.total_parameters == 108 + 8 + 2560 + 10
    assert graph.buffers.sum() == 4 * 8  # mean and variance are not trained
    (tie,) = graph.ties
    assert tie.nodes == (4, 5)
    assert tie.parameters == 2560
    sources, targets, size = graph.edges
    assert sorted(sources[targets == 6].tolist()) == [3, 5]
    assert (size[targets == 6] == 1024).all()
    # Kept: the picture, what the norm and the rectifier's result are computed from, and the narrow tensor.
    assert graph.saved.sum() == 4 * (192 + 256 + 256 + 10)


def test_the_batch_does_not_matter(model: str) -> None:
    one, many = load_graph(model), load_graph(model, batch=8)
    np.testing.assert_array_equal(one.flop, many.flop)
    np.testing.assert_array_equal(one.size, many.size)


def test_constants_belong_to_their_readers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("Constant", [], ["two"], value=weight("", 1)),
        helper.make_node("MatMul", ["x", "turned"], ["p"]),
        helper.make_node("Mul", ["p", "two"], ["y"]),
    ]
    graph = load_graph(saved(tmp_path / "m.onnx", nodes, [weight("w", 5, 8)], [1, 8], "y"))
    assert graph.kinds == ("input", "matmul", "elementwise", "output")
    assert graph.parameters[1] == 40


def test_an_open_dimension_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [], [1, "length"], "y")
    with pytest.raises(BadInputError, match=r'dimension 1 of the input "x"'):
        load_graph(path)


def test_a_value_of_unknown_shape_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=1),
    ]
    with pytest.raises(BadInputError, match="places"):
        load_graph(saved(tmp_path / "m.onnx", nodes, [], [2, 8], "y"))


def test_control_flow_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "b", [], [value("t", [2, 8])])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["yes"], to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["y"], "choice", then_branch=body, else_branch=body),
    ]
    with pytest.raises(BadInputError, match=r"choice \(If\)"):
        load_graph(saved(tmp_path / "m.onnx", nodes, [], [2, 8], "y"))


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x00" * 64])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="ONNX"):
        load_graph(str(path))
