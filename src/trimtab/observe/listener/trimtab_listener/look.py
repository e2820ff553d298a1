"""The one close look at a training step: finds the model, traces the step, writes both down."""

from __future__ import annotations

import sys
from typing import Any

import torch

from .inputs import FEED
from .model import CallWatch, describe_calls, describe_modules, describe_optimizers, find_roots, tensors_in
from .record import ListenerRecorder
from .trace import OperatorTrace


class StepLook:
    """Begins at the end of one step and ends with `finish` at the end of the next."""

    def __init__(self, recorder: ListenerRecorder, optimizers: list[Any]) -> None:
        self._recorder = recorder
        self._watch: CallWatch | None = None
        self._trace: OperatorTrace | None = None
        self._batches_before = FEED.batches
        parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        self._roots = find_roots(parameters)
        if not self._roots:
            recorder.note(
                "no module that owns the optimizer's parameters was found; sizes come from the optimizer"
            )
        facts = describe_modules(self._roots)
        if not self._roots:
            facts["parameters"] = sum(p.numel() for p in parameters)
            facts["parameter_bytes"] = 4 * facts["parameters"]
        recorder.write("model", world=_world_size(), **facts, **describe_optimizers(optimizers))
        self._begin(optimizers, parameters)

    def _begin(self, optimizers: list[Any], parameters: list[torch.Tensor]) -> None:
        fixed = [t for root in self._roots for t in (*root.parameters(), *root.buffers())]
        # Not the gradients: most loops drop them before the next step, and their memory is used anew.
        fixed += parameters + [t for o in optimizers for s in o.state.values() for t in tensors_in(s)]
        trace = OperatorTrace(fixed, parameters)
        self._watch = CallWatch(self._roots, on_first=trace.forget)
        try:
            trace.start()
        except Exception as error:
            trace.stop()
            self._recorder.note(f"the step could not be traced: {error!r:.200}")
        else:
            self._trace = trace

    def finish(self) -> bool:
        """Write what was seen; False when the trace cannot be taken off yet."""
        if self._watch is not None:
            self._watch.stop()
            calls = describe_calls(
                self._watch.calls, self._roots, FEED.batch_size, FEED.batches - self._batches_before
            )
            self._recorder.write("calls", **calls)
            self._watch = None
        if self._trace is None:
            return True
        if not self._trace.stop():
            return False
        self._write_trace(self._trace)
        self._trace = None
        self._roots = []
        return True

    def abandon(self) -> None:
        """Take everything off, whatever was seen."""
        if self._watch is not None:
            self._watch.stop()
        if self._trace is not None:
            self._trace.stop()

    def _write_trace(self, trace: OperatorTrace) -> None:
        if trace.problem is not None:
            self._recorder.note(f"the traced step is incomplete: {trace.problem}")
        self._recorder.write(
            "trace",
            operators=[[phase, kind, *sums] for (phase, kind), sums in trace.sums.items()],
            flop=trace.flop,
            saved_bytes=trace.saved_bytes,
            complete=trace.problem is None,
            precision=_precision(trace.flop_by_type),
            device="cuda" if "cuda" in trace.devices else "cpu",
        )


def _world_size() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1


def _precision(flop_by_type: dict[tuple[str, str], int]) -> str:
    """The number format of most of the arithmetic."""
    if not flop_by_type:
        return "fp32"
    kind, dtype = max(flop_by_type, key=lambda key: flop_by_type[key])
    if dtype in ("bfloat16", "float16"):
        return {"bfloat16": "bf16", "float16": "fp16"}[dtype]
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "fp32"
    settings = torch.backends.cudnn if kind in ("conv", "rnn") else torch.backends.cuda.matmul
    return "tf32" if settings.allow_tf32 else "fp32"
