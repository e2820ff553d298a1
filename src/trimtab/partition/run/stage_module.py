"""One stage of a pipeline as a module: takes what arrives, hands on, holds its own weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TensorParts:
    """The devices that share a stage's products; each keeps a part of every large enough weight.

    What is not split (inputs, biases, norms, what arrives and goes on) is the same on all of them.
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
        """The weight that all parts make up, as one distributed tensor."""
        from torch.distributed.tensor import DTensor, Shard

        dimension = self._dimensions[name]
        if dimension is None:
            return self.replicated([part])[0]
        return DTensor.from_local(part, self._mesh, [Shard(dimension)], run_check=False)

    def replicated(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Tensors that every device has whole, as distributed tensors."""
        from torch.distributed.tensor import DTensor, Replicate

        return [DTensor.from_local(v, self._mesh, [Replicate()], run_check=False) for v in values]

    def whole(self, value: Tensor) -> Tensor:
        """The plain tensor behind a distributed one, the same on every device."""
        from torch.distributed.tensor import DTensor, Replicate

        if not isinstance(value, DTensor):
            return value
        return value.redistribute(self._mesh, [Replicate()]).to_local()

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Attention in plain steps on CPUs, where its fused form cannot be distributed."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not self._on_cpu:
            yield
            return
        with sdpa_kernel(SDPBackend.MATH):
            yield


@contextmanager
def plain_tensors_are_equal(parts: TensorParts | None) -> Iterator[None]:
    """Lets operations mix distributed tensors with plain ones that every device made alike."""
    if parts is None:
        yield
        return
    from torch.distributed.tensor.experimental import implicit_replication

    with implicit_replication():
        yield


def split_dimension(shape: tuple[int, ...], count: int) -> int | None:
    """Where a weight is split: a matrix by its outputs if it has more of those than inputs, else by inputs.

    The other way round where the number of devices does not divide it; None where neither does.
    """
    if len(shape) != 2:
        return None
    preferred = 0 if shape[0] > shape[1] else 1
    return next((d for d in (preferred, 1 - preferred) if shape[d] % count == 0), None)


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor that passes from stage to stage; `trained` where a gradient comes back for it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool

    def example(self, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor like it that holds no values; floating ones in `dtype` where one is given."""
        chosen = dtype if dtype is not None and self.dtype.is_floating_point else self.dtype
        return torch.empty(self.shape, dtype=chosen, device="meta", requires_grad=self.trained)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """State, inputs and outputs of a stage.

    `weights` and `buffers` name entries of the model's state; `loaded` are the model's inputs that it reads
    itself, by their number; `constants` likewise those that are the same for every sample. `mutated` are
    buffers whose new values its graph returns after what it hands on.
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
    """The name under which a module can hold an entry of the model's state; dots are not allowed there."""
    return name.replace(".", "/")


class StageModule(nn.Module):
    """A stage that can be trained. Its graph takes weights, buffers, constants, loaded, received."""

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
        """Take copies of the stage's own part of the model's state; of weights only this device's parts."""
        self.parts = parts
        for name, trained in self.facts.weights:
            value = state[name].detach()
            value = (parts.part(name, value) if parts else value).to(device, copy=True).contiguous()
            self.register_parameter(attribute(name), nn.Parameter(value, requires_grad=trained))
        for name in self.facts.buffers:
            self.register_buffer(attribute(name), state[name].detach().to(device, copy=True))

    def whole_state(self) -> dict[str, Tensor]:
        """Weights and buffers put together again from all devices that hold parts of them; all must ask."""
        state = {}
        for name, value in self.own_state().items():
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            if self.parts is not None and name not in self.facts.buffers:
                whole = self.parts.whole(self.parts.distributed(name, whole.detach()))
            state[name] = whole.detach().cpu()
        return state

    def own_state(self) -> dict[str, Tensor]:
        """Weights and buffers by the names they have in the whole model."""
        names = [*(name for name, _ in self.facts.weights), *self.facts.buffers]
        return {name: getattr(self, attribute(name)) for name in names}

    def forward(self, *received: Tensor, **loaded: Tensor) -> tuple[Tensor, ...]:
        """Outputs of the stage; inputs that it reads itself come by keyword as `input_0`, `input_1`…"""
        if not self.recompute:
            return self._handed_on(self._run(self._buffers_now(), received, loaded))
        again = False

        def once_more(*arrived: Tensor) -> tuple[Tensor, ...]:
            nonlocal again
            buffers = [b.clone() for b in self._buffers_now()] if again else self._buffers_now()
            again = True
            return self._run(buffers, arrived, loaded)

        return self._handed_on(checkpoint(once_more, *received, use_reentrant=False))

    def _buffers_now(self) -> list[Tensor]:
        return [getattr(self, attribute(name)) for name in self.facts.buffers]

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
        """The values that go on, in one piece each; new values of buffers stay here."""
        count = len(self.facts.handed_on)
        for name, value in zip(self.facts.mutated, values[count:], strict=True):
            setattr(self, attribute(name), value.detach())
        return tuple(self._in_format(value).contiguous() for value in values[:count])

    def _in_format(self, value: Tensor) -> Tensor:
        if self.number_format is None or not value.is_floating_point():
            return value
        return value.to(self.number_format)
