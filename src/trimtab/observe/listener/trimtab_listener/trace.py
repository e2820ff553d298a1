"""The operators of one step: equal calls, sums by phase and kind, and memory kept for the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .inputs import FEED
from .model import storage_of, weight_of
from .operators import CallFacts, coarse_kind, dtype_of, is_workspace, kind_of, name_of

_COLUMNS = (
    "phase",
    "operator",
    "kind",
    "dtype",
    "flop",
    "read_bytes",
    "written_bytes",
    "fixed_bytes",
    "sizes",
    "scales",
)


class Weights:
    """Recognises the model's and the optimizer's tensors by their memory, and gradients by their shapes."""

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

        A reference is kept, so that no other tensor gets its address.
        """
        if operands and all(self.owns(tensor) for tensor in operands):
            self._adopted.extend(results)
            self._storages.update(storage_of(tensor) for tensor in results)

    def note_parameters(self, operands: list[torch.Tensor]) -> None:
        """Count parameters met on the way among the model's own: sharded ones are gathered for their use."""
        for tensor in operands:
            if isinstance(tensor, torch.nn.Parameter):
                self._storages.add(storage_of(tensor))
        self._storages.discard(0)

    def note_activations(self, results: Iterable[torch.Tensor]) -> None:
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
        return kind in ("embedding", "rnn") or (kind == "matmul" and not any(self.owns(t) for t in operands))

    def is_shaped_like_one(self, tensor: torch.Tensor) -> bool:
        """Whether some parameter has this shape, either way round."""
        return _core(tensor.shape) in self._shapes


def _core(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape without its dimensions of one element, which come and go around a parameter's gradient."""
    return tuple(size for size in shape if size != 1)


class LiveBytes:
    """Bytes of tensors made in the step that are alive, and the most that were at once."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._alive: dict[int, Any] = {}

    def made(self, operands: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Count memory that a call allocated; results may also be operands, or views of them."""
        before = {storage_of(tensor) for tensor in operands}
        for tensor in results:
            address = storage_of(tensor)
            if address and address not in before and address not in self._alive:
                storage = tensor.untyped_storage()
                size = storage.nbytes()
                self._alive[address] = weakref.ref(storage, partial(self._free, address, size))
                self.now += size
        self.peak = max(self.peak, self.now)

    def _free(self, address: int, size: int, reference: Any) -> None:
        if self._alive.pop(address, None) is not None:
            self.now -= size


class OperatorTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches every operator between `start` and `stop`, in the forward pass, the backward pass and after."""

    def __init__(self, fixed: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.problem: str | None = None
        self.forget()
        self._weights = Weights(fixed, parameters)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooked = False
        self._entered = False

    def forget(self) -> None:
        """Start counting anew: operators before the model's first call only prepared its data."""
        # (phase, kind): [calls, fixed bytes, bytes read, bytes written]
        self.sums: dict[tuple[str, str], list[int]] = {}
        self.calls: dict[tuple[Any, ...], int] = {}  # by the values of _COLUMNS
        self.live = LiveBytes()
        self.flop = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
        self.flop_by_type: dict[tuple[str, str], float] = {}  # (kind, number format): FLOP
        self._saved: dict[tuple[int, int], int] = {}  # (backward passes before, storage): bytes
        self._reserved = 0
        self.devices: set[str] = set()
        self._backward_passes = 0
        self._graph_task = -1

    def start(self) -> None:
        """Begin between two calls of the script, with no other mode or hook active."""
        self.__enter__()  # type: ignore[no-untyped-call]
        self._entered = True
        self._hooks.__enter__()
        self._hooked = True
        self._yield_hooks()

    def stop(self) -> bool:
        """End at the end of a later step; False while another dispatch mode lies on top of this one."""
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
        phase, weights = self._phase(), self._weights
        facts = CallFacts(func, kind, args, kwargs, result)
        operands, results = facts.operands, facts.results
        weights.note_parameters(operands)
        if func.overloadpacket.__name__ == "_to_copy":
            weights.adopt(operands, results)
        if phase == "forward":
            weights.note_activations(results)
        if phase != "optimizer":
            self.live.made(operands, [tensor for tensor in results if not is_workspace(tensor)])
        gradients = self._gradients(kind, phase, operands, results)
        self._add_sums(kind, phase, operands, results, gradients)
        self._add_call(func, kind, phase, facts, gradients)
        if kind == "rnn" and phase == "forward" and facts.sizes.get("gates") and torch.is_grad_enabled():
            # Gates and cell states, which one operator keeps in a workspace of its library's own format.
            sizes = facts.sizes
            states = sizes["batch"] * sizes["length"] * sizes["hidden"]
            self._reserved += 4 * states * (sizes["gates"] + 1)
        if facts.flop:
            self.flop[phase] += facts.flop
            self.devices.add(operands[0].device.type)
            key = (kind, dtype_of(operands))
            self.flop_by_type[key] = self.flop_by_type.get(key, 0.0) + facts.flop

    def _gradients(
        self, kind: str, phase: str, operands: list[torch.Tensor], results: list[torch.Tensor]
    ) -> set[int]:
        """Identities of the results that are a weight's gradient."""
        if phase != "backward" or not self._weights.makes_gradient(coarse_kind(kind), operands):
            return set()
        return {id(tensor) for tensor in results if self._weights.is_shaped_like_one(tensor)}

    def _add_sums(
        self,
        kind: str,
        phase: str,
        operands: list[torch.Tensor],
        results: list[torch.Tensor],
        gradients: set[int],
    ) -> None:
        sums = self.sums.setdefault((phase, coarse_kind(kind)), [0, 0, 0, 0])
        sums[0] += 1
        if kind == "view":
            return
        for column, tensors in ((2, operands), (3, results)):
            for tensor in tensors:
                if not is_workspace(tensor):
                    fixed = id(tensor) in gradients or self._weights.is_fixed(tensor, phase)
                    sums[1 if fixed else column] += weight_of(tensor)

    def _add_call(self, func: Any, kind: str, phase: str, facts: CallFacts, gradients: set[int]) -> None:
        def is_fixed(tensor: torch.Tensor | None) -> bool:
            if tensor is None:
                return False
            return id(tensor) in gradients or self._weights.is_fixed(tensor, phase)

        read = sum(size for size, _ in facts.read)
        written = sum(size for size, _ in facts.written)
        fixed = sum(size for size, tensor in (*facts.read, *facts.written) if is_fixed(tensor))
        scales = "" if phase == "optimizer" or kind == "view" else "elements"
        if phase != "optimizer" and "batch" in facts.sizes:
            scales = "batch"
        grouped = name_of(func) == "_grouped_mm"  # its groups are experts, whose number is fixed
        if facts.factors is not None and (facts.sizes["batch"] == 1 or grouped) and phase != "optimizer":
            owned = [self._weights.owns(tensor) for tensor in facts.factors]
            grows = "k" if facts.results and is_fixed(facts.results[0]) else "m"
            scales = "m" if owned[1] else "n" if owned[0] else grows
        dtype = dtype_of(facts.operands) if kind != "view" else ""
        amounts = (float(facts.flop), float(read), float(written), float(fixed))
        key = (phase, name_of(func), kind, dtype, *amounts, tuple(facts.sizes.items()), scales)
        self.calls[key] = self.calls.get(key, 0) + 1

    def rows(self) -> list[dict[str, Any]]:
        """Equal calls as the profile has them."""
        return [
            {**dict(zip(_COLUMNS, key)), "sizes": dict(key[8]), "calls": float(calls)}  # noqa: B905
            for key, calls in self.calls.items()
        ]

    @property
    def peak_live_bytes(self) -> int:
        """Most bytes of tensors that were alive at once, with workspaces that recurrent layers keep."""
        return self.live.peak + self._reserved

    @property
    def saved_bytes(self) -> int:
        """Memory kept for the backward pass, without parameters."""
        return sum(self._saved.values()) + self._reserved

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
            if not is_workspace(tensor) and not self._weights.owns(tensor):
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
