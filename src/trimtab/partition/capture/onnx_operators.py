"""What operators of ONNX do: their kind, their arithmetic, and what a backward pass needs of them."""

from collections.abc import Sequence
from math import prod

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
_KEEP_NOTHING = (
    "Add",
    "Sub",
    "Sum",
    "Neg",
    "Concat",
    "Transpose",
    "Expand",
    "Pad",
    "Tile",
    "Cast",
    "Dropout",
    "ReduceMean",
    "ReduceSum",
    "AveragePool",
    "GlobalAveragePool",
    "Clip",
)
_KEEP_RESULT = ("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Softmax", "LogSoftmax", "Attention")


def kind_of(operator: str) -> str:
    """One of the kinds of a graph's nodes."""
    if operator.endswith("Normalization"):
        return "norm"
    return _KIND.get(operator, "elementwise")


def keeps_inputs(operator: str) -> bool:
    """Whether the backward pass needs what the operator read."""
    return operator not in _KEEP_NOTHING and (operator not in _KEEP_RESULT or operator == "Attention")


def keeps_result(operator: str) -> bool:
    """Whether the backward pass needs what the operator wrote."""
    return operator in _KEEP_RESULT


def flop_of(operator: str, inputs: Sequence[Shape], result: Shape, transposed: bool) -> float:
    """Arithmetic of one call, 2 per multiply-add; 0 for what is no product. Gemm may turn its input."""
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
