"""One stage of a pipeline as a module with its own weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TensorParts:
    """Tensor parallelism of a stage: each device keeps a part of every weight that can be split.

    Unsplit tensors (inputs, biases, norms, received and sent tensors) are equal on all devices.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        from torch.distributed.device_mesh import DeviceMesh

        self._mesh = DeviceMesh.from_group(group, device.type)
        self._count = self._mesh.size()
        self._own = self._mesh.get_local_rank()
        self._on_cpu = device.type == "cpu"
        self._dimensions: dict[str, int | None] = {}

    def part(self, name: str, weight: Tensor) -> Tensor:
        """This device's part of a weight."""
        dimension = self._dimensions[name] = split_dimension(tuple(weight.shape), self._count)
        return weight if dimension is None else weight.chunk(self._count, dimension)[self._own]

    def distributed(self, name: str, part: Tensor) -> Tensor:
        """The distributed tensor of all parts of a weight."""
        from torch.distributed.tensor import DTensor, Shard

        dimension = self._dimensions[name]
        if dimension is None:
            return self.replicated([part])[0]
        return DTensor.from_local(part, self._mesh, [Shard(dimension)], run_check=False)

    def replicated(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Tensors that are equal on every device, as distributed tensors."""
        from torch.distributed.tensor import DTensor, Replicate

        return [DTensor.from_local(v, self._mesh, [Replicate()], run_check=False) for v in values]

    def whole(self, value: Tensor) -> Tensor:
        """The plain tensor of a distributed one, equal on every device."""
        from torch.distributed.tensor import DTensor, Replicate

        if not isinstance(value, DTensor):
            return value
        return value.redistribute(self._mesh, [Replicate()]).to_local()

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Unfused attention on CPUs, where the fused form cannot be distributed."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not self._on_cpu:
            yield
            return
        with sdpa_kernel(SDPBackend.MATH):
            yield


@contextmanager
def plain_tensors_are_equal(parts: TensorParts | None) -> Iterator[None]:
    """Lets operations mix distributed tensors with plain ones that are equal on every device."""
    if parts is None:
        yield
        return
    from torch.distributed.tensor.experimental import implicit_replication

    with implicit_replication():
        yield


def split_dimension(shape: tuple[int, ...], count: int) -> int | None:
    """The dimension in which a matrix is split over `count` devices: the larger, if `count` divides it.

    Else the other; None if neither can be divided.
    """
    if len(shape) != 2:
        return None
    preferred = 0 if shape[0] > shape[1] else 1
    return next((d for d in (preferred, 1 - preferred) if shape[d] % count == 0), None)


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor that passes from stage to stage; `trained` if it gets a gradient."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool

    def example(self, dtype: torch.dtype | None = None) -> Tensor:
        """A meta tensor like it; floating ones in `dtype` if given."""
        chosen = dtype if dtype is not None and self.dtype.is_floating_point else self.dtype
        return torch.empty(self.shape, dtype=chosen, device="meta", requires_grad=self.trained)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """State, inputs and outputs of a stage.

    `weights` and `buffers` name entries of the model's state; `loaded` are numbers of the model's inputs that
    it reads, `constants` of those that are equal for all samples. `mutated` are buffers whose new values its
    graph returns after the tensors it hands on.
    """

    number: int
    weights: tuple[tuple[str, bool], ...]
    buffers: tuple[str, ...]
    constants: tuple[int, ...]
    loaded: tuple[int, ...]
    received: tuple[TensorFacts, ...]
    handed_on: tuple[TensorFacts, ...]
    mutated: tuple[str, ...]


def attribute(name: str) -> str:
    """The attribute for an entry of the model's state: attribute names may not contain dots."""
    return name.replace(".", "/")


class StageModule(nn.Module):
    """A trainable stage. Its graph takes weights, buffers, constants, loaded and received tensors."""

    def __init__(self, graph: nn.Module, facts: StageFacts) -> None:
        super().__init__()
        self.graph = graph
        self.facts = facts
        self.recompute = False
        self.number_format: torch.dtype | None = None
        self.constants: dict[int, Tensor] = {}
        self.parts: TensorParts | None = None

    def load(
        self, state: Mapping[str, Tensor], device: torch.device, parts: TensorParts | None = None
    ) -> None:
        """Copy the stage's part of the model's state; with `parts`, only this device's parts of weights."""
        self.parts = parts
        for name, trained in self.facts.weights:
            value = state[name].detach()
            value = (parts.part(name, value) if parts else value).to(device, copy=True).contiguous()
            self.register_parameter(attribute(name), nn.Parameter(value, requires_grad=trained))
        for name in self.facts.buffers:
            self.register_buffer(attribute(name), state[name].detach().to(device, copy=True))

    def whole_state(self) -> dict[str, Tensor]:
        """Weights and buffers gathered from all devices that hold parts of them; all must call it."""
        state = {}
        for name in (*(name for name, _ in self.facts.weights), *self.facts.buffers):
            value = getattr(self, attribute(name))
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            if self.parts is not None and name not in self.facts.buffers:
                whole = self.parts.whole(self.parts.distributed(name, whole.detach()))
            state[name] = whole.detach().cpu()
        return state

    def forward(self, *received: Tensor, **loaded: Tensor) -> tuple[Tensor, ...]:
        """Outputs of the stage; the model's inputs that it reads come by keyword as `input_0`, `input_1`…"""
        recomputing = False

        def run(*received: Tensor) -> tuple[Tensor, ...]:
            nonlocal recomputing
            buffers = [getattr(self, attribute(name)) for name in self.facts.buffers]
            if recomputing:  # the second run must not change them again
                buffers = [buffer.clone() for buffer in buffers]
            recomputing = True
            return self._run(buffers, received, loaded)

        if not self.recompute:
            return self._handed_on(run(*received))
        return self._handed_on(checkpoint(run, *received, use_reentrant=False))

    def _run(
        self, buffers: list[Tensor], received: tuple[Tensor, ...], loaded: Mapping[str, Tensor]
    ) -> tuple[Any, ...]:
        weights = {name: getattr(self, attribute(name)) for name, _ in self.facts.weights}
        others = [
            *buffers,
            *(self.constants[number] for number in self.facts.constants),
            *(loaded[f"input_{number}"] for number in self.facts.loaded),
            *received,
        ]
        with self._arithmetic(others):
            if self.parts is None:
                return tuple(self.graph(*weights.values(), *others))
            split = [self.parts.distributed(name, part) for name, part in weights.items()]
            with self.parts.arithmetic():
                values = self.graph(*split, *self.parts.replicated(others))
            return tuple(self.parts.whole(value) for value in values)

    @contextmanager
    def _arithmetic(self, values: Sequence[Tensor]) -> Iterator[None]:
        if self.number_format is None:
            yield
            return
        kind = next((t.device.type for t in (*values, *self.parameters())), "cpu")
        with torch.autocast(kind, self.number_format):
            yield

    def _handed_on(self, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The values to hand on, contiguous and in the number format; new values of buffers are stored."""
        count, number_format = len(self.facts.handed_on), self.number_format
        for name, value in zip(self.facts.mutated, values[count:], strict=True):
            setattr(self, attribute(name), value.detach())
        return tuple(
            (value.to(number_format) if number_format and value.is_floating_point() else value).contiguous()
            for value in values[:count]
        )
