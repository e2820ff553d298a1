"""One training step of a model without a script: built by a function or from a Hugging Face configuration."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .fake_values import FakeMode, FakeValues
from .look import StepLook, write_model, write_trace
from .model import ModuleCall, describe_calls, tensors_in
from .trace import OperatorTrace

_LONGEST_DEFAULT = 2048  # tokens of a sequence, for language models without an --input


class BuildError(ValueError):
    """The model cannot be built, or not be called with this input."""


def parse_input(text: str) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and number format of "8x2048:int64"; without a format, float32."""
    shape, _, dtype = text.partition(":")
    kind = getattr(torch, dtype or "float32", None)
    sizes = shape.lower().split("x")
    if not isinstance(kind, torch.dtype) or not all(size.isdigit() and int(size) for size in sizes):
        raise BuildError(f'the input "{text}" should be like 8x2048:int64 or 32x3x224x224')
    return tuple(int(size) for size in sizes), kind


def find_builder(spec: str) -> Callable[[], Any]:
    """A function without arguments that returns the model `spec` names: MODULE:FUNCTION or a config.json."""
    if spec.endswith(".json"):
        return lambda: _from_configuration(spec)
    module_name, _, name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BuildError(f'the module "{module_name}" of --model cannot be imported: {error}') from None
    builder = getattr(module, name, None)
    if not callable(builder):
        raise BuildError(f'the module "{module_name}" has no function "{name}"')
    found: Callable[[], Any] = builder
    return found


def _from_configuration(path: str) -> Any:
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise BuildError(
            "a config.json needs Hugging Face's transformers; run: pip install transformers"
        ) from None
    config = transformers.AutoConfig.from_pretrained(path)
    names = getattr(config, "architectures", None) or ()
    model_class = next((c for name in names if (c := getattr(transformers, name, None)) is not None), None)
    dtype = getattr(config, "dtype", None)
    options = {"dtype": dtype} if dtype is not None else {}
    if model_class is None:
        return transformers.AutoModelForCausalLM.from_config(config, **options)
    return model_class._from_config(config, **options)


def one_step(model: Any, inputs: Sequence[str], optimizer: Any) -> None:
    """Forward pass, loss, backward pass, optimizer step."""
    output = _call(model, inputs)
    loss: Any = getattr(output, "loss", None)
    if loss is None:
        floating = [t for t in tensors_in(output, 6) if t.is_floating_point() and t.requires_grad]
        if not floating:
            raise BuildError("the model returned no tensor that depends on its parameters")
        loss = sum(t.float().mean() for t in floating)
    loss.backward()
    optimizer.step()


def _call(model: Any, inputs: Sequence[str]) -> Any:
    config = getattr(model, "config", None)
    longest = getattr(config, "max_position_embeddings", None)
    if not inputs and longest is None:
        raise BuildError("the model's input is not known; give its shape, like --input 8x2048:int64")
    shapes = [parse_input(text) for text in inputs or [f"1x{min(longest or 1, _LONGEST_DEFAULT)}:int64"]]
    tensors = [_tensor(shape, dtype) for shape, dtype in shapes]
    if config is not None and len(tensors) == 1 and shapes[0][1] == torch.int64:
        return model(input_ids=tensors[0], labels=tensors[0])
    return model(*tensors)


def _tensor(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def make_optimizer(name: str, model: Any) -> Any:
    """An optimizer of PyTorch for the model's parameters."""
    kind = getattr(torch.optim, name, None)
    if kind is None:
        raise BuildError(f'PyTorch has no optimizer "{name}"; use one like AdamW or SGD')
    return kind([p for p in model.parameters() if p.requires_grad], lr=1e-4)


def main(spec: str, optimizer: str, *inputs: str) -> None:
    """Build the model and train it for one step, under the listener."""
    sys.path.insert(0, os.getcwd())
    model = find_builder(spec)()
    model.train()
    one_step(model, inputs, make_optimizer(optimizer, model))


class RecordList:
    """Keeps the records of one process in memory."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def write(self, record: str, **fields: Any) -> None:
        self.records.append({"record": record, **fields})

    def note(self, text: str) -> None:
        self.write("note", text=text)


def trace_single_step(
    build: Callable[[], Any], inputs: Sequence[str], optimizer: str | None
) -> list[dict[str, Any]]:
    """Records of one training step with fake tensors in this process; without an optimizer, of inference."""
    records: Any = RecordList()
    with FakeMode(), FakeValues(records) as mode:
        model = build()
        if optimizer is None:
            _trace_inference(records, model.eval(), inputs)
        else:
            made = make_optimizer(optimizer, model.train())
            look = StepLook(records, lambda: [made], lambda: None, mode)
            try:
                one_step(model, inputs, made)
                look.finish()
            finally:
                look.abandon()
    return list(records.records)


def _trace_inference(records: Any, model: Any, inputs: Sequence[str]) -> None:
    trace = OperatorTrace([*model.parameters(), *model.buffers()], list(model.parameters()))
    with torch.no_grad():
        trace.start()
        try:
            output = _call(model, inputs)
        finally:
            trace.stop()
    write_model(records, [model], [], [])
    shapes = [parse_input(text) for text in inputs] or [((1,), torch.int64)]
    call = ModuleCall(id(model), [_tensor(*shape) for shape in shapes])
    call.returned(list(tensors_in(output)))
    records.write("calls", **describe_calls([call], [model], None, 0))
    write_trace(records, trace, True)
