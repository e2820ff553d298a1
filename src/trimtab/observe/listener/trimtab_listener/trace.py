"""The operators of one step by phase and kind: calls, bytes, FLOP, and memory kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .inputs import FEED
from .model import storage_of, tensors_in, weight_of

_EXACT = {
    "conv": (
        "convolution",
        "_convolution",
        "convolution_backward",
        "mkldnn_convolution",
        "cudnn_convolution",
    ),
    "matmul": (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "addmv",
        "mv",
        "dot",
        "vdot",
        "_scaled_mm",
        "_int_mm",
    ),
    "copy": ("clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "transpose", "permute"),
    "view": (
        "_unsafe_view",
        "_reshape_alias",
        "_conj",
        "alias",
        "as_strided_",
        "detach",
        "detach_",
        "select_backward",
        "slice_backward",
        "t",
        "unfold",
    ),
    "elementwise": ("lift_fresh", "native_dropout", "native_dropout_backward"),
}
_KIND = {name: kind for kind, names in _EXACT.items() for name in names}
_CONTAINS = (
    ("batch_norm", "norm"),
    ("layer_norm", "norm"),
    ("group_norm", "norm"),
    ("rms_norm", "norm"),
    ("embedding", "embedding"),
    ("index", "embedding"),
    ("gather", "embedding"),
    ("scatter", "embedding"),
    ("attention", "attention"),
    ("softmax", "softmax"),
    ("rnn", "rnn"),
    ("lstm", "rnn"),
    ("gru", "rnn"),
)
_SILENT = ("profiler", "c10d", "_c10d_functional", "prim", "prims")
_forward: Any = flop_counter.sdpa_flop_count
_backward: Any = flop_counter.sdpa_backward_flop_count


def kind_of(operator: Any) -> str | None:
    """One of the kinds, or None for what computes nothing: markers, and messages between workers."""
    if operator.namespace in _SILENT:
        return None
    name = operator.overloadpacket.__name__
    if name in _KIND:
        return _KIND[name]
    if getattr(operator, "is_view", False):
        return "view"
    # Pools come before the indices that some of them return: "max_pool2d_with_indices" is no lookup.
    if "pool" in name:
        return "pool"
    return next((kind for part, kind in _CONTAINS if part in name), "elementwise")


def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return int(_forward(query.shape, key.shape, value.shape))


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return int(_backward(gradient.shape, query.shape, key.shape, value.shape))


# The CPU's fused attention is left out of PyTorch's own registry, but the work moves to any device.
_LACKING = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}
_FORMULAS = dict(flop_counter.flop_registry)
for _name, _formula in _LACKING.items():
    if hasattr(torch.ops.aten, _name):
        _FORMULAS.setdefault(getattr(torch.ops.aten, _name), _formula)


def flop_of(operator: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOP of one call; 0 for what is neither a matrix product nor a convolution."""
    formula = _FORMULAS.get(operator.overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))


class Weights:
    """Knows the model's and the optimizer's tensors by their memory, and gradients by their shapes."""

    def __init__(self, fixed: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        self._storages = {storage_of(tensor) for tensor in fixed} - {0}
        self._shapes = {_core(p.shape) for p in parameters} | {_core(reversed(p.shape)) for p in parameters}
        self._activations: set[tuple[int, ...]] = set()
        self._adopted: list[torch.Tensor] = []

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is one of the model's or the optimizer's own, or a view of one."""
        return storage_of(tensor) in self._storages

    def adopt(self, operands: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Count a weight in another number format, as autocast makes it, among the model's own.

        It is held on to, so that nothing else can come to lie at its address.
        """
        if operands and all(self.owns(tensor) for tensor in operands):
            self._adopted.extend(results)
            self._storages.update(storage_of(tensor) for tensor in results)

    def seen_forward(self, results: Iterable[torch.Tensor]) -> None:
        """Remember activations' shapes: the gradient of one may be shaped like a weight by chance."""
        for tensor in results:
            if tensor.dim() > 1 and not self.owns(tensor):
                shape = _core(tensor.shape)
                self._activations.update((shape, shape[::-1]))

    def is_fixed(self, tensor: torch.Tensor, phase: str) -> bool:
        """Whether a tensor's size does not depend on the batch's."""
        if tensor.dim() == 0 or phase == "optimizer" or self.owns(tensor):
            return True
        shape = _core(tensor.shape)
        if phase == "backward":
            return shape in self._shapes and shape not in self._activations
        return tensor.dim() == 1 and shape in self._shapes

    def makes_gradient(self, kind: str, operands: list[torch.Tensor]) -> bool:
        """Whether an operator of the backward pass computes a weight's gradient.

        A product with a weight in it passes the gradient on to the layer before; one without makes the
        weight's own.
        """
        return kind == "embedding" or (kind == "matmul" and not any(self.owns(t) for t in operands))

    def is_shaped_like_one(self, tensor: torch.Tensor) -> bool:
        """Whether some parameter has this shape, either way round."""
        return _core(tensor.shape) in self._shapes


def _core(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape without its dimensions of one element, which come and go around a parameter's gradient."""
    return tuple(size for size in shape if size != 1)


class OperatorTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches every operator between `start` and `stop`, in the forward pass, the backward pass and after."""

    def __init__(self, fixed: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.problem: str | None = None
        self.forget()
        self._weights = Weights(fixed, parameters)
        self._backward_passes = 0
        self._graph_task = -1
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._hooked = False
        self._entered = False

    def forget(self) -> None:
        """Start counting anew: what ran before the model was first called only prepared its data."""
        # (phase, kind): [calls, fixed bytes, bytes read, bytes written]
        self.sums: dict[tuple[str, str], list[int]] = {}
        self.flop = {"forward": 0, "backward": 0, "optimizer": 0}
        self.flop_by_type: dict[tuple[str, str], int] = {}  # (kind, number format): FLOP
        self._saved: dict[tuple[int, int], int] = {}  # (backward passes before, storage): bytes
        self.devices: set[str] = set()

    def start(self) -> None:
        """Begin at the end of one optimizer step."""
        self.__enter__()  # type: ignore[no-untyped-call]
        self._entered = True
        self._hooks.__enter__()
        self._hooked = True
        self._yield_hooks()

    def stop(self) -> bool:
        """End at the end of a later step; False while someone else's mode lies on top of this one."""
        self._unhook()
        if self._entered and _get_current_dispatch_mode() is not self:
            return False
        if self._entered:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._entered = False
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.problem is None and self._hooked:
            try:
                self._count(func, args, kwargs, result)
            except Exception as error:
                self.problem = f"{func}: {error!r:.120}"
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        kind = kind_of(func)
        if kind is None or FEED.fetching:
            return
        phase = self._phase()
        sums = self.sums.setdefault((phase, kind), [0, 0, 0, 0])
        sums[0] += 1
        operands, results = list(tensors_in((args, kwargs))), list(tensors_in(result))
        if func.overloadpacket.__name__ == "_to_copy":
            self._weights.adopt(operands, results)
        if phase == "forward":
            self._weights.seen_forward(results)
        if kind == "view":
            return
        self._weigh(sums, phase, kind, operands, results)
        flop = flop_of(func, args, kwargs, result)
        if flop:
            self.flop[phase] += flop
            self.devices.add(operands[0].device.type)
            key = (kind, str(operands[0].dtype).replace("torch.", ""))
            self.flop_by_type[key] = self.flop_by_type.get(key, 0) + flop

    def _weigh(
        self,
        sums: list[int],
        phase: str,
        kind: str,
        operands: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> None:
        weights = self._weights
        makes_gradient = phase == "backward" and weights.makes_gradient(kind, operands)
        for tensor in operands:
            if not _is_workspace(tensor):
                sums[1 if weights.is_fixed(tensor, phase) else 2] += weight_of(tensor)
        for tensor in results:
            if not _is_workspace(tensor):
                gradient = makes_gradient and weights.is_shaped_like_one(tensor)
                sums[1 if gradient or weights.is_fixed(tensor, phase) else 3] += weight_of(tensor)

    @property
    def saved_bytes(self) -> int:
        """Memory kept for the backward pass, without parameters."""
        return sum(self._saved.values())

    def _phase(self) -> str:
        task = torch._C._current_graph_task_id()
        if task != -1:
            self._backward_passes += task != self._graph_task
            self._graph_task = task
            return "backward"
        # Clipping, unscaling and the step itself all run without gradients after a backward pass.
        return "optimizer" if self._backward_passes and not torch.is_grad_enabled() else "forward"

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            if not _is_workspace(tensor) and not self._weights.owns(tensor):
                # One storage may be kept many times (a result by its layer and by the next) but takes its
                # memory once; a view of it may be larger than the view kept before. After a backward pass,
                # as when gradients accumulate, the same address holds something else.
                key = (self._backward_passes, storage_of(tensor))
                self._saved[key] = max(self._saved.get(key, 0), weight_of(tensor))
        except Exception as error:
            self.problem = self.problem or f"saved tensor: {error!r:.120}"
        return tensor

    def _unhook(self) -> None:
        if self._hooked:
            self._hooked = False
            self._hooks.__exit__(None, None, None)
            torch._C._autograd._saved_tensors_hooks_disable = self._disable

    def _yield_hooks(self) -> None:
        """Step aside for code that forbids such hooks (torch.func does) instead of making it fail."""
        self._disable = torch._C._autograd._saved_tensors_hooks_disable

        def disable(*args: Any, **kwargs: Any) -> Any:
            self.problem = self.problem or "the script uses function transforms (torch.func)"
            self._unhook()
            return self._disable(*args, **kwargs)

        torch._C._autograd._saved_tensors_hooks_disable = disable


def _is_workspace(tensor: torch.Tensor) -> bool:
    """Whether a tensor is scratch space of a library, whose size is that library's affair."""
    return tensor.dtype == torch.uint8 and tensor.dim() == 1


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
