"""Captures any module as a graph: exported if possible, else traced, else module by module."""

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx.config
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, symbolic_trace

from trimtab.core import BadInputError
from trimtab.partition.capture.builder import as_fake, changed, fake_copy, meta_copy
from trimtab.partition.capture.modules import from_modules
from trimtab.partition.capture.record import tensors_in
from trimtab.partition.capture.traced import Members, from_fx, from_program
from trimtab.partition.graph import Graph

How = Literal["export", "fx", "modules"]


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A model's graph, captured from `batch` example samples, and its trace.

    `members[i]` names the traced nodes of node i: of `program.graph` when exported, of `module.graph` when
    traced by torch.fx, else the modules it calls. `note` says why export was not possible.
    """

    graph: Graph
    how: How
    note: str
    batch: int
    members: Members
    program: ExportedProgram | None = None
    module: GraphModule | None = None


def capture_model(model: nn.Module, example_inputs: Any, name: str) -> Captured:
    """The graph of `model`, called with `example_inputs`: a tensor, a tuple, or a dictionary by name."""
    args, kwargs = arguments_of(example_inputs)
    first = next(tensors_in((args, kwargs)), None)
    if first is None or first.dim() == 0 or first.shape[0] == 0:
        raise BadInputError(
            f"the example inputs of {name} hold no batch; give the model's inputs as tensors whose first "
            f"dimension counts samples"
        )
    batch = int(first.shape[0])
    failures: list[str] = []
    for strict in (False, True):
        try:
            with quiet():
                program = _exported(model, args, kwargs, strict)
                traced = from_program(program, batch)
            return Captured(traced.draft.graph(name), "export", "", batch, traced.members, program=program)
        except Exception as error:  # a user's model may raise anything, and so may a tracer
            failures.append(_first_line(error))
    note = f"torch.export cannot trace it ({failures[0]})"
    try:
        with quiet():
            module = symbolic_trace(meta_copy(model))
            names = [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]
            inputs = (*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs))
            traced = from_fx(module, inputs, batch)
        return Captured(traced.draft.graph(name), "fx", note, batch, traced.members, module=module)
    except Exception as error:
        note += f", nor can torch.fx ({_first_line(error)})"
    with quiet():
        traced = from_modules(model, args, kwargs, batch, name)
    return Captured(traced.draft.graph(name), "modules", note, batch, traced.members)


def _exported(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], strict: bool
) -> ExportedProgram:
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        model = fake_copy(model, mode)
        args, kwargs = changed((args, kwargs), lambda tensor: as_fake(tensor, mode))
    with _without_stack_traces():
        return torch.export.export(model, args, kwargs, strict=strict)


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Skip stack traces, which take a fifth of the time; some versions of PyTorch have no such switch."""
    switches: Any = torch.fx.config
    if not hasattr(switches, "do_not_emit_stack_traces"):
        yield
        return
    before = switches.do_not_emit_stack_traces
    switches.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        switches.do_not_emit_stack_traces = before


def arguments_of(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call, from a tensor, a tuple, or a dictionary by name."""
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given), {}) if isinstance(given, tuple | list) else ((given,), {})


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:200]


@contextmanager
def quiet() -> Iterator[None]:
    """Discard warnings, logs and prints: tracers are verbose about what is not the user's fault."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    discarded = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(discarded), redirect_stderr(discarded):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
