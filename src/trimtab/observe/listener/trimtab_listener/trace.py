"""One training step, operator by operator: calls, bytes, FLOP, and what is kept for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .flop import flop_of
from .kinds import kind_of
from .loader import FEED
from .tensors import storage_of, tensors_in, weight_of
from .weights import Weights


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
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
