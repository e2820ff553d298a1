"""Reads the graph of an ONNX model with inferred shapes; values of weights are not read."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError, one_line
from trimtab.partition.capture.draft import Draft, DraftNode, Held, NodeWork
from trimtab.partition.graph import Graph

Shape = tuple[int, ...]

_KINDS = {
    "conv": ("Conv", "ConvTranspose"),
    "matmul": ("MatMul", "Gemm"),
    "attention": ("Attention",),
    "rnn": ("LSTM", "GRU", "RNN"),
    "pool": ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"),
    "softmax": ("Softmax", "LogSoftmax"),
    "embedding": ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"),
    "view": ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "Split", "Slice"),
    "copy": ("Transpose", "Concat", "Expand", "Pad", "Tile", "Cast"),
}
_KIND = {name: kind for kind, names in _KINDS.items() for name in names}
_KEEP_NOTHING = {
    *("Add", "Sub", "Sum", "Neg", "Concat", "Transpose", "Expand", "Pad", "Tile", "Cast", "Dropout", "Clip"),
    *("ReduceMean", "ReduceSum", "AveragePool", "GlobalAveragePool"),
}
_KEEP_RESULT = ("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Softmax", "LogSoftmax", "Attention")


def kind_of(operator: str) -> str:
    """One of the kinds of a graph's nodes."""
    return "norm" if operator.endswith("Normalization") else _KIND.get(operator, "elementwise")


def flop_of(operator: str, inputs: Sequence[Shape], result: Shape, transposed: bool) -> float:
    """FLOP of one call, 2 per multiply-add; 0 if it is no product. `transposed` is the input of a Gemm."""
    if operator == "Conv":
        return 2.0 * prod(result) * prod(inputs[1][1:])
    if operator == "ConvTranspose":
        return 2.0 * prod(inputs[0]) * prod(inputs[1][1:])
    if operator in ("MatMul", "Gemm"):
        return 2.0 * prod(result) * inputs[0][-2 if transposed else -1]
    if operator == "Attention":
        return 2.0 * inputs[1][-2] * (prod(inputs[0]) + prod(result))
    if operator in ("LSTM", "GRU", "RNN"):
        return 2.0 * prod(inputs[0][:2]) * (prod(inputs[1]) + prod(inputs[2]))
    return 0.0


_STATISTICS = slice(3, 5)  # inputs of a batch normalisation that are not trained


def read_onnx(path: Path | str, batch: int = 1) -> Graph:
    """The graph of a model; `batch` samples where an input leaves its first dimension open."""
    where = str(path)
    model = _inferred(_loaded(Path(path)), where, batch)
    return _OnnxReader(model.graph, where).draft.graph(Path(path).stem)


def _loaded(path: Path) -> Any:
    try:
        import onnx
        import onnx.inliner
    except ImportError:
        raise MissingDependencyError(
            "reading an ONNX model needs the package onnx: pip install 'trimtab[onnx]'"
        ) from None
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}; name an ONNX model") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from None
    except Exception:  # another kind of file may fail in any way
        raise BadInputError(f"{path} is not an ONNX model") from None
    if not model.graph.node:
        raise BadInputError(f"{path} is not an ONNX model, or one without nodes")
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _inferred(model: Any, where: str, batch: int) -> Any:
    """The model with open first dimensions set to `batch`, and shapes inferred from its inputs."""
    import onnx

    weights = {weight.name for weight in model.graph.initializer}
    for value in model.graph.input:
        for number, dimension in enumerate(value.type.tensor_type.shape.dim):
            if value.name in weights or dimension.HasField("dim_value"):
                continue
            if number:
                raise BadInputError(
                    f'{where}: dimension {number} of the input "{value.name}" is open; export the model with '
                    f"fixed input shapes"
                )
            dimension.dim_value = batch
    del model.graph.value_info[:]  # they may name dimensions that are set now
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise BadInputError(f"{where}: shapes cannot be inferred: {one_line(str(error))[:200]}") from None


class _OnnxReader:
    """Builds parts in the file's order; views join the viewed node, constants their readers."""

    def __init__(self, graph: Any, where: str) -> None:
        self._where = where
        self._shapes: dict[str, tuple[Shape, int]] = {}
        self._weights: dict[str, set[int]] = {}  # weights by the value that is computed from them alone
        self._maker: dict[str, int] = {}
        self._root: dict[str, str] = {}
        self._tensor: dict[str, int] = {}
        self._saved: set[str] = set()
        self.draft = Draft(1, self._held(graph))
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
                self._shapes[value.name] = (tuple(d.dim_value for d in tensor.shape.dim), tensor.elem_type)
        self._begin(graph)
        for number, node in enumerate(graph.node):
            self._add(node, node.name or f"{node.op_type}_{number}")
        self._end(graph)

    def _held(self, graph: Any) -> dict[int, Held]:
        import onnx

        statistics = {
            name
            for node in graph.node
            if node.op_type == "BatchNormalization"
            for name in node.input[_STATISTICS]
        }
        held = {}
        for key, weight in enumerate(graph.initializer):
            shape = tuple(weight.dims)
            self._shapes[weight.name] = (shape, weight.data_type)
            self._weights[weight.name] = {key}
            numeric = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).kind == "f"
            # A single number is a constant of the formula (an epsilon, an exponent) rather than a weight.
            trained = numeric and prod(shape) > 1 and weight.name not in statistics
            held[key] = Held(prod(shape), self._size(weight.name), trained)
        return held

    def _shape(self, name: str) -> Shape:
        if name not in self._shapes:
            raise BadInputError(
                f'{self._where}: the shape of the value "{name}" is not known; export the model with fixed '
                f"input shapes"
            )
        return self._shapes[name][0]

    def _size(self, name: str) -> float:
        """Bytes of a value; floating-point numbers count as four."""
        import onnx

        kind = onnx.helper.tensor_dtype_to_np_dtype(self._shapes[name][1])
        return float(prod(self._shape(name)) * (4 if kind.kind == "f" else kind.itemsize))

    def _begin(self, graph: Any) -> None:
        inputs = [value.name for value in graph.input if value.name not in self._weights]
        for name in inputs:
            self._maker[name] = len(self.draft.parts)
            self.draft.parts.append(DraftNode(name, "", "input", NodeWork()))
        shape = self._shape(inputs[0]) if inputs else ()
        self.draft.batch = max(shape[0], 1) if shape else 1

    def _add(self, node: Any, name: str) -> None:
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise BadInputError(
                f"{self._where}: the path of {name} ({node.op_type}) depends on data; export the model "
                f"without control flow"
            )
        reads = [value for value in node.input if value and value not in self._weights]
        unmade = next((value for value in reads if value not in self._maker), None)
        if unmade is not None:
            raise BadInputError(f'{self._where}: {name} reads "{unmade}", which nothing before it makes')
        weights = set().union(*(self._weights.get(value, ()) for value in node.input))
        kind = kind_of(node.op_type)
        if not reads:
            self._weights.update(dict.fromkeys(node.output, weights))
        elif kind == "view":
            latest = max(reads, key=self._maker.__getitem__)
            for value in node.output:
                self._maker[value] = self._maker[latest]
                self._root[value] = self._root.get(latest, latest)
        else:
            # Exporters name a node for its module: "/layers.0/mlp/MatMul" runs in layers.0.mlp.
            *modules, _ = words = name.strip("/").split("/")
            part = DraftNode(".".join(words), ".".join(modules), kind, NodeWork(held=weights))
            self._place(part, node, reads)

    def _place(self, part: DraftNode, node: Any, reads: list[str]) -> None:
        number = len(self.draft.parts)
        self.draft.parts.append(part)
        for value in dict.fromkeys(reads):
            self._use(value, number)
        written = [node.output[0], *(value for value in node.output[1:] if value in self._shapes)]
        self._maker.update(dict.fromkeys(written, number))
        shapes = [self._shape(value) for value in node.input if value]
        transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        flop = flop_of(node.op_type, shapes, self._shape(written[0]), transposed)
        part.work.add(part.kind, flop, sum(self._size(value) for value in (*reads, *written)))
        keeps_result = node.op_type in _KEEP_RESULT
        saved = written[:1] if keeps_result else []
        if node.op_type == "Attention" or not (keeps_result or node.op_type in _KEEP_NOTHING):
            saved = [*reads, *saved]
        self._saved |= {self._root.get(value, value) for value in saved}

    def _use(self, value: str, user: int) -> None:
        if self._maker[value] == user:
            return
        if value not in self._tensor:
            self._tensor[value] = len(self.draft.tensors)
            self._shape(value)
            self.draft.tensors.append((self._maker[value], self._size(value)))
        self.draft.uses.append((self._tensor[value], user))

    def _end(self, graph: Any) -> None:
        self.draft.parts.append(DraftNode("output", "", "output", NodeWork()))
        for value in graph.output:
            if value.name in self._maker:
                self._use(value.name, len(self.draft.parts) - 1)
        for value in self._saved:
            self.draft.parts[self._maker[value]].saved += self._size(value)
