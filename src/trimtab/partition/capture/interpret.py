"""Runs a traced model on the meta device, node by node, under a recorder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from trimtab.partition.capture.kinds import RECURRENT
from trimtab.partition.capture.record import Recorder, bytes_of, key_of, tensors_in
from trimtab.partition.capture.stand_ins import StandIns
from trimtab.partition.capture.work import Held, Work


class NeedsValuesError(Exception):
    """A step depends on numbers that the meta device has not: the model has to be captured in another way."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What every node of a traced model does, keeps for the backward pass, and hands on (bytes)."""

    works: Mapping[Node, Work]
    saved: Mapping[Node, float]
    sizes: Mapping[Node, float]
    held: Mapping[int, Held]


def measure(module: GraphModule, inputs: tuple[Any, ...], held: Mapping[int, Held]) -> Measured:
    """Run `module` on meta `inputs`; `held` are its weights, by what the recorder will know them."""
    recorder = Recorder(held)
    interpreter = _Interpreter(module, recorder)
    with torch.device("meta"), StandIns(), recorder, torch.enable_grad():
        interpreter.run(*inputs)
    return Measured(recorder.works, recorder.saved(), interpreter.sizes, held)


class _Interpreter(Interpreter):
    def __init__(self, module: GraphModule, recorder: Recorder) -> None:
        super().__init__(module)
        self.recorder = recorder
        self.sizes: dict[Node, float] = {}

    def run_node(self, n: Node) -> Any:
        self.recorder.part = n
        result = super().run_node(n)
        if n.op != "output":
            self.recorder.made(n, result)
            self.sizes[n] = sum(bytes_of(tensor) for tensor in tensors_in(result))
            self._as_one(n)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = getattr(target, "_schema", None)
        if "device" in kwargs or (schema and any(a.name == "device" for a in schema.arguments)):
            kwargs = {**kwargs, "device": "meta"}
        if isinstance(target, torch._ops.HigherOrderOperator):
            return _call_within(target, args, kwargs)
        if getattr(target, "__name__", "").startswith("_assert"):
            return None
        return super().call_function(target, args, kwargs)

    def _as_one(self, n: Node) -> None:
        """A recurrent layer is one kernel that reads its inputs and writes its outputs."""
        packet = getattr(n.target, "overloadpacket", None)
        is_layer = n.op == "call_module" and isinstance(self.fetch_attr(str(n.target)), torch.nn.RNNBase)
        if is_layer or (packet is not None and packet.__name__ in RECURRENT):
            work = self.recorder.works[n]
            moved = self.sizes[n] + sum(self.sizes[source] for source in self._data(n))
            work.calls, work.traffic, work.by_kind = 1.0, moved, {"rnn": (work.flop, moved)}

    def _data(self, n: Node) -> list[Node]:
        """What a node reads that is no weight."""
        held = self.recorder.held
        return [
            source
            for source in n.all_input_nodes
            if not any(key_of(tensor) in held for tensor in tensors_in(self.env.get(source)))
        ]


def _call_within(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A block under `torch.no_grad` or `autocast`, which an exported program keeps as one of its own."""
    body = next((place for place, arg in enumerate(args) if isinstance(arg, torch.nn.Module)), None)
    if body is None or "cond" in str(target) or "while" in str(target):
        raise NeedsValuesError(f"{target} cannot be run without values")
    gradients = "grad_enabled" not in str(target) or bool(args[0])
    with torch.set_grad_enabled(gradients):
        return args[body](*args[body + 1 :], **kwargs)
