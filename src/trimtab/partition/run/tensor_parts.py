"""Tensor parallelism within a stage: large weights in parts, every operation on all devices (DTensor)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


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
