"""The trace of one training step: finds the model, traces its operators, records both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .inputs import FEED
from .model import CallWatch, describe_calls, describe_modules, describe_optimizers, find_roots, tensors_in
from .record import ListenerRecorder
from .trace import OperatorTrace


class StepLook:
    """Traces from the model's next call to `finish`, or from now on if that is not possible.

    A trace has to be the outermost of PyTorch's modes and hooks, so that the script's own come and go above
    it. If a mode or hook is active when the model is called first, the trace begins later, by `begin`.
    """

    def __init__(
        self,
        recorder: ListenerRecorder,
        optimizers: Callable[[], list[Any]],
        on_first_call: Callable[[], None],
        ambient_mode: Any = None,
    ) -> None:
        self._recorder = recorder
        self._optimizers = optimizers
        self._on_first_call: Callable[[], None] | None = on_first_call
        self._ambient_mode = ambient_mode
        self._trace: OperatorTrace | None = None
        self._batches_before = 0
        self._watch: CallWatch | None = CallWatch(self._parameters, self._before_call)
        self._fresh = False

    @property
    def began(self) -> bool:
        """Whether operators are being traced."""
        return self._trace is not None

    def _parameters(self) -> list[torch.Tensor]:
        return [p for o in self._optimizers() for group in o.param_groups for p in group["params"]]

    def _before_call(self, module: Any) -> None:
        if self._on_first_call is not None:
            self._on_first_call()
            self._on_first_call = None
        if self._trace is None and self._is_alone():
            # The batch of this call has come already.
            self._begin([module], FEED.batches - 1)
        elif self._fresh and self._trace is not None:
            self._trace.forget()
        self._fresh = False

    def _is_alone(self) -> bool:
        hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        if hooks is not None and hooks(True) is not None:
            return False
        return _get_current_dispatch_mode() is self._ambient_mode

    def begin(self) -> None:
        """Trace the next step; called at the end of one. The model's next call starts the count anew."""
        self.restart()
        self._begin(find_roots(self._parameters()), FEED.batches)
        self._fresh = True

    def restart(self) -> None:
        """Forget what was traced so far: the step was skipped, so the next one starts over."""
        if self._watch is not None:
            self._watch.calls.clear()
        if self._trace is not None:
            self._trace.forget()
        self._batches_before = FEED.batches

    def _begin(self, modules: Iterable[torch.nn.Module], batches_before: int) -> None:
        self._batches_before = max(0, batches_before)
        parameters, optimizers = self._parameters(), self._optimizers()
        fixed = [t for module in modules for t in (*module.parameters(), *module.buffers())]
        # Not the gradients: most loops drop them before the next step, and their memory is reused.
        fixed += parameters + [t for o in optimizers for s in o.state.values() for t in tensors_in(s)]
        trace = OperatorTrace(fixed, parameters)
        try:
            trace.start()
        except Exception as error:
            trace.stop()
            self._recorder.note(f"the step could not be traced: {error!r:.200}")
        else:
            self._trace = trace

    def write(self) -> None:
        """Record what was traced so far."""
        parameters = self._parameters()
        roots = find_roots(parameters)
        write_model(self._recorder, roots, parameters, self._optimizers())
        if self._watch is not None:
            batches = FEED.batches - self._batches_before
            calls = describe_calls(self._watch.calls, roots, FEED.batch_size, batches)
            self._recorder.write("calls", **calls)
        if self._trace is not None:
            write_trace(self._recorder, self._trace, self._ambient_mode is not None)

    def finish(self) -> bool:
        """Record the step; False when the trace cannot be removed yet."""
        removed = self._trace is None or self._trace.stop()
        if self._watch is not None:
            self.write()
            self._watch.stop()
            self._watch = None
        if removed:
            self._trace = None
        return removed

    def abandon(self) -> None:
        """Remove all hooks without recording."""
        if self._watch is not None:
            self._watch.stop()
        if self._trace is not None:
            self._trace.stop()


def write_model(
    recorder: Any, roots: list[Any], parameters: list[torch.Tensor], optimizers: list[Any]
) -> None:
    """Record sizes and layers of the modules, and the optimizers' state."""
    facts = describe_modules(roots)
    if not roots:
        recorder.note(
            "no module that owns the optimizer's parameters was found; sizes come from the optimizer"
        )
        facts["parameters"] = facts["trained_parameters"] = sum(p.numel() for p in parameters)
        facts["parameter_bytes"] = 4 * facts["parameters"]
    recorder.write("model", world=_world_size(), **facts, **describe_optimizers(optimizers))


def write_trace(recorder: Any, trace: OperatorTrace, fake: bool) -> None:
    """Record the operators of the step."""
    if trace.problem is not None:
        recorder.note(f"the traced step is incomplete: {trace.problem}")
    recorder.write(
        "trace",
        operators=[[phase, kind, *sums] for (phase, kind), sums in trace.sums.items()],
        rows=trace.rows(),
        flop=trace.flop,
        saved_bytes=trace.saved_bytes,
        peak_live_bytes=trace.peak_live_bytes,
        complete=trace.problem is None,
        precision=_precision(trace.flop_by_type),
        device=_device(trace.devices, fake),
    )


def _device(devices: set[str], fake: bool) -> str:
    if fake or "meta" in devices:
        return "meta"
    return "cuda" if "cuda" in devices else "cpu"


def _world_size() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1


def _precision(flop_by_type: dict[tuple[str, str], float]) -> str:
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
