"""Captures a model whose steps depend on its data: one run of its modules on the example inputs."""

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn

from trimtab.core import BadInputError, one_line
from trimtab.partition.capture.builder import LARGEST_REAL_MODEL, meta_copy, moved
from trimtab.partition.capture.draft import Draft, DraftNode, Held, NodeWork
from trimtab.partition.capture.record import (
    OperatorRecorder,
    StandIns,
    held_by,
    key_of,
    storage_bytes,
    tensors_in,
)
from trimtab.partition.capture.traced import Traced

_NOWHERE = -1


def from_modules(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], batch: int, name: str
) -> Traced:
    """The graph of the modules that run, on the meta device if possible, else on the CPU."""
    try:
        return _run(meta_copy(model), moved((args, kwargs), "meta"), batch, on_meta=True)
    except Exception as error:  # the model may need values
        first = error
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    if size > LARGEST_REAL_MODEL:
        raise BadInputError(
            f"{name} cannot be captured: its steps depend on its data ({one_line(str(first))[:120]}), and "
            f"{size / 2**30:.0f} GiB of weights are too many to run it for real; make the model export"
        ) from None
    try:
        real = copy.deepcopy(model)
        if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
            real = meta_copy(model).to_empty(device="cpu")
            with torch.no_grad():
                for tensor in (*real.parameters(), *real.buffers()):
                    tensor.normal_(0.0, 0.02) if tensor.is_floating_point() else tensor.zero_()
        return _run(real, moved((args, kwargs), "cpu"), batch, on_meta=False)
    except Exception as error:
        raise BadInputError(
            f"{name} does not run with its example inputs: {type(error).__name__}: "
            f"{one_line(str(error))[:200]}"
        ) from None


class _Calls(OperatorRecorder):  # type: ignore[no-untyped-call]
    """Parts numbered in calling order: the inputs, then each call of a module without children."""

    def __init__(self, held: Mapping[int, Held], draft: Draft) -> None:
        super().__init__(held)
        self.draft = draft
        self.inputs = 0
        self._depth = 0
        self._tensors: dict[tuple[int, int], int] = {}
        self._uses: set[tuple[int, int]] = set()

    def begin(self, name: str, kind: str) -> int:
        """Add a part; returns its number."""
        block = "" if kind in ("input", "output") else name
        self.draft.parts.append(DraftNode(name, block, kind, NodeWork()))
        return len(self.draft.parts) - 1

    def enter(self, path: str) -> None:

        if self._depth == 0:
            self.part = self.begin(path, "")
        self._depth += 1

    def leave(self) -> None:

        self._depth -= 1
        if self._depth == 0:
            self.part = None

    def place(self, operands: list[torch.Tensor], results: list[torch.Tensor], mutates: bool) -> int:
        """The running module; between modules, the last maker of the operator's operands."""
        part = self.part if self.part is not None else self._latest(operands)
        if part != _NOWHERE:
            self.use(part, operands)
        if mutates:
            for tensor in results:
                self.maker[key_of(tensor)] = part
        return part

    def use(self, part: int, operands: list[torch.Tensor]) -> None:
        """Record that `part` reads tensors."""
        for tensor in operands:
            key = key_of(tensor)
            maker = self.maker.get(key)
            if maker is None or maker in (part, _NOWHERE):
                continue
            if (maker, key) not in self._tensors:
                self._tensors[maker, key] = len(self.draft.tensors)
                self.draft.tensors.append((maker, storage_bytes(tensor)))
            use = (self._tensors[maker, key], part)
            if use not in self._uses:
                self._uses.add(use)
                self.draft.uses.append(use)

    def _latest(self, operands: list[torch.Tensor]) -> int:
        makers = (self.maker.get(key_of(tensor)) for tensor in operands)
        latest = max((maker for maker in makers if maker is not None), default=_NOWHERE)
        return self.begin("between", "") if 0 <= latest < self.inputs else latest


def _run(model: nn.Module, inputs: Any, batch: int, on_meta: bool) -> Traced:
    args, kwargs = inputs
    held = held_by(model)
    calls = _Calls(held, Draft(batch, held))
    for number, tensor in enumerate(tensors_in((args, kwargs))):
        calls.made(calls.begin(f"input_{number}", "input"), tensor)
        calls.inputs += 1
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if not [*module.children()] or isinstance(module, nn.MultiheadAttention):
                enter = partial(calls.enter, path or "model")
                before = module.register_forward_pre_hook(lambda *_, enter=enter: enter())
                after = module.register_forward_hook(lambda *_: calls.leave())
                stack.callback(before.remove)
                stack.callback(after.remove)
        if on_meta:
            stack.enter_context(torch.device("meta"))
            stack.enter_context(StandIns())
        stack.enter_context(calls)
        stack.enter_context(torch.enable_grad())
        result = model(*args, **kwargs)
    calls.use(calls.begin("output", "output"), [*tensors_in(result)])
    return _finished(calls, model)


def _finished(calls: _Calls, model: nn.Module) -> Traced:
    """The draft without modules that computed nothing (they returned views of earlier results)."""
    saved = calls.saved()
    old = calls.draft
    busy = {n for n, work in calls.works.items() if work.calls}
    kept = [n for n, part in enumerate(old.parts) if part.kind or n in busy]
    number = {n: place for place, n in enumerate(kept)}
    draft = Draft(old.batch, old.held)
    recurrent = {path for path, module in model.named_modules() if isinstance(module, nn.RNNBase)}
    for n in kept:
        part = old.parts[n]
        part.saved = saved.get(n, 0.0)
        if not part.kind:
            part.work = calls.works[n]
            part.kind = "rnn" if part.name in recurrent else part.work.kind
        draft.parts.append(part)
    draft.tensors = [(number[maker], size) for maker, size in old.tensors]
    draft.uses = [(tensor, number[user]) for tensor, user in old.uses if user in number]
    return Traced(draft, tuple((part.name,) for part in draft.parts))
