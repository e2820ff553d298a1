"""Answers to a script that asks for values in a fake run."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from .fake import NeedsValueError
from .model import tensors_in
from .record import ListenerRecorder

_FINITE_CHECKS = {"isnan": False, "isinf": False, "isfinite": True}
_KEEP = (
    "any",
    "all",
    "view",
    "_unsafe_view",
    "squeeze",
    "alias",
    "detach",
    "clone",
    "_to_copy",
    "amax",
    "max",
)
_MOST_ELEMENTS = 2**24  # that are computed for real


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Makes fake tensors, converts real ones where they meet, and stays itself when a tensor is copied."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __deepcopy__(self, memo: Any) -> FakeMode:
        return self


class CpuForCuda(TorchFunctionMode):
    """Puts tensors on the CPU where a script asks for a GPU that is not there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        kwargs = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        result = func(*map(_on_cpu, args), **kwargs)
        return torch.device("cpu") if isinstance(result, torch.device) and result.type == "cpu" else result


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


class FakeValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes with real data for real, and gives a number for a loss that a script logs.

    A number of fake weights is 1.0: scripts print losses and norms. Checks for NaN and infinity find none. A
    truth value of anything else decides what the script does next, so it is an error.
    """

    def __init__(self, recorder: ListenerRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        self._checks: Any = WeakTensorKeyDictionary()  # results of checks: their truth values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = list(tensors_in((args, kwargs)))
        name = func.overloadpacket.__name__
        # FakeTensor.constant and plain tensors have numbers; wrappers (sharded ones) are taken for fake.
        real = all(type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type == "cpu" for t in tensors)
        counts = name == "arange" and _is_small_count(args, kwargs)
        if ((tensors and real and _is_small(tensors)) or counts) and _is_on_cpu(kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if name == "_local_scalar_dense" and isinstance(args[0], FakeTensor) and args[0].constant is None:
            return self._answer(args[0])
        result = _grouped_product(*args, **kwargs) if name == "_grouped_mm" else func(*args, **kwargs)
        self._note_check(name, tensors, result, args)
        return result

    def _note_check(self, name: str, tensors: list[torch.Tensor], result: Any, args: Any) -> None:
        if not isinstance(result, torch.Tensor) or result.dtype != torch.bool or not tensors:
            return
        known = [self._checks.get(tensor) for tensor in tensors]
        answer: bool | None = None
        if name in _FINITE_CHECKS:
            answer = _FINITE_CHECKS[name]
        elif name in ("eq", "ne") and len(tensors) == 2 and tensors[0] is tensors[1]:
            answer = name == "eq"  # a number that differs from itself is NaN
        elif name in ("eq", "ne") and isinstance(args[1], float) and math.isinf(args[1]):
            answer = name == "ne"
        elif name in _KEEP:
            answer = known[0]
        elif name in ("logical_not", "bitwise_not") and known[0] is not None:
            answer = not known[0]
        elif None not in known and name in ("mul", "logical_and", "bitwise_and", "__and__"):
            answer = all(known)
        elif None not in known and name in ("logical_or", "bitwise_or", "__or__", "add"):
            answer = any(known)
        if answer is not None:
            self._checks[result] = answer

    def _answer(self, tensor: torch.Tensor) -> Any:
        if tensor.is_floating_point():
            return 1.0
        if tensor.dtype == torch.bool and self._checks.get(tensor) is not None:
            return self._checks[tensor]
        raise NeedsValueError(f"the value of a tensor of {str(tensor.dtype).replace('torch.', '')}")


def _is_on_cpu(kwargs: Any) -> bool:
    return str(kwargs.get("device")) in ("cpu", "None")


def _is_small(tensors: list[torch.Tensor]) -> bool:
    """Whether a call with these operands computes little, also if they are broadcast."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    try:
        shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return sum(tensor.numel() for tensor in tensors) <= _MOST_ELEMENTS
    return int(math.prod(shape)) <= _MOST_ELEMENTS


def _is_small_count(args: Any, kwargs: Any) -> bool:
    """Whether `arange` makes few whole numbers: positions, ranks."""
    if kwargs.get("dtype") not in (None, torch.int64, torch.int32):
        return False
    return all(isinstance(value, int) and abs(value) <= _MOST_ELEMENTS for value in args)


def _grouped_product(a: torch.Tensor, b: torch.Tensor, offs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The result's shape; PyTorch's own rule accepts bfloat16 only, though CPUs multiply other formats."""
    shape = [a.shape[-2], b.shape[-1]]
    if a.dim() == b.dim():  # both in groups, or columns of one and rows of the other in groups
        shape.insert(0, a.shape[0] if a.dim() == 3 else offs.shape[0])
    return a.new_empty(shape)
