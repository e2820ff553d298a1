"""Training samples of a run (the builder's batches, or random ones) and the loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from trimtab.core import BadInputError
from trimtab.partition.plan import Plan

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BatchFunction = Callable[[int, torch.Generator], Any]
LossFunction = Callable[[Any, Any], Tensor]


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One input of the model; integers are below `limit`. Without `per_sample`, all samples share it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    per_sample: bool
    limit: int

    def random(self, samples: int, generator: torch.Generator) -> Tensor:
        """Random values for `samples` samples: normal, or integers below the limit."""
        shape = (samples, *self.shape[1:]) if self.per_sample else self.shape
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return torch.randn(shape, generator=generator, dtype=self.dtype)
        return torch.randint(0, self.limit, shape, generator=generator).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of every step, determined by the seed; `batch` is the builder's function."""

    inputs: tuple[InputFacts, ...]
    seed: int
    batch: BatchFunction | None = None

    def step(self, number: int, samples: int) -> tuple[tuple[Tensor, ...], Any]:
        """Inputs and targets of one step; targets are None if the builder's `batch` returns inputs only."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        if self.batch is None:
            fixed = [torch.Generator().manual_seed(self.seed) for _ in self.inputs]
            return tuple(
                facts.random(samples, generator if facts.per_sample else same)
                for facts, same in zip(self.inputs, fixed, strict=True)
            ), None
        returned, targets = self.batch(samples, generator), None
        flat = _tensors(returned)
        if isinstance(returned, tuple) and len(returned) == 2:
            first = _tensors(returned[0])
            if len(first) == len(self.inputs):
                flat, targets = first, returned[1]
        if len(flat) != len(self.inputs):
            raise BadInputError(
                f"batch() returned {len(flat)} tensors, but the model takes {len(self.inputs)}; "
                "it must return the model's inputs, or a pair of those and targets"
            )
        for facts, value in zip(self.inputs, flat, strict=True):
            expected = (samples, *facts.shape[1:]) if facts.per_sample else facts.shape
            if tuple(value.shape) != expected:
                raise BadInputError(
                    f"batch({samples}, …) returned a tensor of shape {tuple(value.shape)}, "
                    f"but the model takes {expected}"
                )
        return tuple(flat), targets

    def inputs_of(
        self, inputs: Sequence[Tensor], plan: Plan, replica: int, microbatch: int
    ) -> tuple[Tensor, ...]:
        """Inputs of one replica in one micro-batch of a step."""
        rows = _rows(plan, replica, microbatch)
        return tuple(
            value[rows] if facts.per_sample else value
            for facts, value in zip(self.inputs, inputs, strict=True)
        )

    def targets_of(self, targets: Any, plan: Plan, replica: int, microbatch: int) -> Any:
        """Targets of one replica in one micro-batch: its rows of every tensor with a row for each sample."""
        rows = _rows(plan, replica, microbatch)

        def cut(value: Any) -> Any:
            whole = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == plan.batch
            return value[rows] if whole else value

        return pytree.tree_map(cut, targets)

    def replica_inputs(self, inputs: Sequence[Tensor], plan: Plan, replica: int) -> tuple[Tensor, ...]:
        """Inputs of one replica in a step, micro-batch after micro-batch."""
        parts = [self.inputs_of(inputs, plan, replica, m) for m in range(plan.microbatches)]
        return tuple(
            torch.cat([part[i] for part in parts]) if facts.per_sample else parts[0][i]
            for i, facts in enumerate(self.inputs)
        )


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The structure of the model's outputs, with constants among them; tensors come from the last stage."""

    spec: Any
    flat: tuple[Any, ...]

    @classmethod
    def of_one_tensor(cls) -> "Outputs":
        """The outputs of a model that returns one tensor."""
        return cls(pytree.tree_structure(0), (_Handed(),))

    def rebuilt(self, handed_on: Sequence[Tensor]) -> Any:
        """The outputs in the model's structure."""
        values = iter(handed_on)
        return pytree.tree_unflatten(
            [next(values) if isinstance(item, _Handed) else item for item in self.flat], self.spec
        )


class _Handed:
    """A placeholder for an output that is a tensor."""


def outputs_of(program: "ExportedProgram") -> Outputs:
    """The structure of an exported program's outputs."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    skipped = len(program.graph_signature.output_specs) - len(program.graph_signature.user_outputs)
    flat = tuple(_Handed() if isinstance(v, fx.Node) else v for v in output.args[0][skipped:])
    return Outputs(program.call_spec.out_spec, flat)


def mean_of_squares(outputs: Any, targets: Any) -> Tensor:
    """The default loss: mean of squares of the first floating output."""
    for value in pytree.tree_leaves(outputs):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.float().square().mean()
    raise BadInputError(
        "the model returns no floating numbers; a function loss(outputs, targets) must say what to train"
    )


def inputs_of(program: "ExportedProgram", per_sample: Sequence[bool]) -> tuple[InputFacts, ...]:
    """The inputs of an exported program; integers stay below the sizes of the embeddings they index."""
    by_name = {node.name: node for node in program.graph.nodes}
    nodes = [by_name[name] for name in program.graph_signature.user_inputs if name in by_name]
    nodes = [node for node in nodes if isinstance(node.meta.get("val"), Tensor)]
    return tuple(
        InputFacts(tuple(node.meta["val"].shape), node.meta["val"].dtype, one, _limit(node))
        for node, one in zip(nodes, per_sample, strict=True)
    )


def _limit(node: fx.Node) -> int:
    """The rows of the smallest embedding that an input indexes; two if it indexes none."""
    rows = []
    waiting, visited = [node], {node}
    while waiting:
        for user in waiting.pop().users:
            value = user.meta.get("val")
            if user.target is torch.ops.aten.embedding.default and user.args[1] in visited:
                table: Any = user.args[0]
                rows.append(int(table.meta["val"].shape[0]))
            elif user not in visited and isinstance(value, Tensor) and not value.is_floating_point():
                visited.add(user)
                waiting.append(user)
    return min(rows, default=2)


def _rows(plan: Plan, replica: int, microbatch: int) -> slice:
    """The samples of a step that one replica computes in one micro-batch."""
    first = microbatch * sum(plan.shares) + sum(plan.shares[:replica])
    return slice(first, first + plan.shares[replica])


def on_device(values: Any, device: torch.device) -> Any:
    """All tensors in a structure on a device."""
    return pytree.tree_map(lambda value: value.to(device) if isinstance(value, Tensor) else value, values)


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """`batch(samples, generator)` gives inputs, or inputs and targets; `loss(outputs, targets)` a number."""

    batch: BatchFunction | None
    loss: LossFunction


def user_functions(source: ModuleType) -> UserFunctions:
    """Functions that the builder's module defines; the default loss where it defines none."""
    return UserFunctions(getattr(source, "batch", None), getattr(source, "loss", mean_of_squares))
