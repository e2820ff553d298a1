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
    """One input of the model: its shape for `samples` samples, and for whole numbers how many there are."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    per_sample: bool
    limit: int

    def made_up(self, samples: int, generator: torch.Generator) -> Tensor:
        """Random values for so many samples: normal, or whole numbers below the limit."""
        shape = (samples, *self.shape[1:]) if self.per_sample else self.shape
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return torch.randn(shape, generator=generator, dtype=self.dtype)
        return torch.randint(0, self.limit, shape, generator=generator).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of every step, always the same for the same seed; `batch` is the builder's function."""

    inputs: tuple[InputFacts, ...]
    seed: int
    batch: BatchFunction | None = None

    def step(self, number: int, samples: int) -> tuple[tuple[Tensor, ...], Any]:
        """Inputs and targets of one step (targets None where there are none)."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        if self.batch is None:
            return tuple(
                facts.made_up(samples, generator if facts.per_sample else self._fixed())
                for facts in self.inputs
            ), None
        return self._own(self.batch(samples, generator), samples)

    def _fixed(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _own(self, returned: Any, samples: int) -> tuple[tuple[Tensor, ...], Any]:
        """Inputs and targets as the builder's `batch` returned them: inputs, or (inputs, targets)."""
        inputs, targets = returned, None
        if (
            isinstance(returned, tuple)
            and len(returned) == 2
            and len(self._flat(returned[0])) == len(self.inputs)
        ):
            inputs, targets = returned
        flat = self._flat(inputs)
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
        """Likewise of its targets: those rows of every tensor that has one for each sample."""
        rows = _rows(plan, replica, microbatch)

        def cut(value: Any) -> Any:
            whole = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == plan.batch
            return value[rows] if whole else value

        return pytree.tree_map(cut, targets)

    def replica_inputs(self, inputs: Sequence[Tensor], plan: Plan, replica: int) -> tuple[Tensor, ...]:
        """All that one replica gets in a step, micro-batch after micro-batch."""
        parts = [self.inputs_of(inputs, plan, replica, m) for m in range(plan.microbatches)]
        return tuple(
            torch.cat([part[i] for part in parts]) if facts.per_sample else parts[0][i]
            for i, facts in enumerate(self.inputs)
        )

    @staticmethod
    def _flat(value: Any) -> list[Tensor]:
        return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


@dataclass(frozen=True, slots=True)
class Outputs:
    """How the model returns what the last stage hands on; constants among its outputs are kept here."""

    spec: Any
    flat: tuple[Any, ...]

    @classmethod
    def of_one_tensor(cls) -> "Outputs":
        """The form of a model that returns a tensor and nothing else."""
        return cls(pytree.tree_structure(0), (_Handed(),))

    def rebuilt(self, handed_on: Sequence[Tensor]) -> Any:
        """The outputs in the model's own form."""
        values = iter(handed_on)
        return pytree.tree_unflatten(
            [next(values) if isinstance(item, _Handed) else item for item in self.flat], self.spec
        )


class _Handed:
    """Stands for an output that is a tensor."""


def outputs_of(program: "ExportedProgram") -> Outputs:
    """The form of an exported program's outputs."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    skipped = len(program.graph_signature.output_specs) - len(program.graph_signature.user_outputs)
    flat = tuple(_Handed() if isinstance(v, fx.Node) else v for v in output.args[0][skipped:])
    return Outputs(program.call_spec.out_spec, flat)


def mean_of_squares(outputs: Any, targets: Any) -> Tensor:
    """The loss where the builder's file has none: mean of squares of the first floating output."""
    for value in pytree.tree_leaves(outputs):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.float().square().mean()
    raise BadInputError(
        "the model returns no floating numbers; a function loss(outputs, targets) must say what to train"
    )


def inputs_of(program: "ExportedProgram", per_sample: Sequence[bool]) -> tuple[InputFacts, ...]:
    """The facts of an exported program's inputs; whole numbers stay below the tables they look into."""
    by_name = {node.name: node for node in program.graph.nodes}
    nodes = [by_name[name] for name in program.graph_signature.user_inputs if name in by_name]
    nodes = [node for node in nodes if isinstance(node.meta.get("val"), Tensor)]
    return tuple(
        InputFacts(tuple(node.meta["val"].shape), node.meta["val"].dtype, one, _limit(node))
        for node, one in zip(nodes, per_sample, strict=True)
    )


def _limit(node: fx.Node) -> int:
    """The rows of the smallest embedding that an input looks into; two where it looks into none."""
    rows = []
    waiting, seen = [node], {node}
    while waiting:
        for user in waiting.pop().users:
            if user.target is torch.ops.aten.embedding.default and user.args[1] in seen:
                table: Any = user.args[0]
                rows.append(int(table.meta["val"].shape[0]))
            elif user not in seen and isinstance(user.meta.get("val"), Tensor) and not _floating(user):
                seen.add(user)
                waiting.append(user)
    return min(rows, default=2)


def _floating(node: fx.Node) -> bool:
    return bool(node.meta["val"].is_floating_point())


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
