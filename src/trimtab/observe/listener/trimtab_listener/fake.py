"""A run with fake tensors: shapes without memory or arithmetic, until the first optimizer step.

PyTorch's `FakeTensorMode` is active from the import of PyTorch on. Data stay real: batches of a `DataLoader`,
tensors made from NumPy or by `torch.tensor`, and all that is computed from these alone. Scripts may look at
data; only values that depend on weights are unknown.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from .record import ListenerRecorder

_LISTENER = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class NeedsValueError(RuntimeError):
    """A script asked for the value of a fake tensor where any answer could change what it does."""


class FakeRun:
    """Makes tensors fake, answers requests for harmless values, and ends the script after its first step."""

    def __init__(self, recorder: ListenerRecorder) -> None:
        self._recorder = recorder
        self.top_mode: Any = None  # the mode on top of PyTorch's stack while nothing is traced
        self._previous_hook = sys.excepthook
        sys.excepthook = self._report

    def begin(self) -> None:
        """Enter the modes for the rest of the run; called when PyTorch has been imported."""
        from .fake_values import CpuForCuda, FakeMode, FakeValues

        FakeMode().__enter__()
        if not sys.modules["torch"].cuda.is_available():
            CpuForCuda().__enter__()  # type: ignore[no-untyped-call]
            _use_no_gpu()
        self.top_mode = FakeValues(self._recorder)
        self.top_mode.__enter__()
        _step_always()
        _convert_parameters()
        _copy_real_tensors()
        replicate_nothing()

    def callbacks(self) -> dict[str, Callable[[], None]]:
        """Changes to libraries after their import."""
        return {
            "transformers.modeling_utils": self.build_from_configuration,
            "torch.distributed": connect_nothing,
            "torch.distributed.fsdp": lambda: shard_nothing(self._recorder),
        }

    def end(self) -> None:
        """End the process: the facts are written, and nothing must be saved from a run without numbers."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def load_really(self, module: Any) -> None:
        """Load data with real tensors and without worker processes."""
        original_init = module.DataLoader.__init__
        original_iter = module.DataLoader.__iter__
        original_next = module._BaseDataLoaderIter.__next__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            args = (*args[:5], 0, *args[6:]) if len(args) > 5 else args
            serial = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0}
            serial["multiprocessing_context"] = None
            original_init(self, *args, **{k: serial.get(k, v) for k, v in kwargs.items()})

        def __iter__(self: Any) -> Any:  # noqa: N807
            with real_tensors():
                return original_iter(self)

        def __next__(self: Any) -> Any:  # noqa: N807
            with real_tensors():
                return original_next(self)

        module.DataLoader.__init__ = __init__
        module.DataLoader.__iter__ = __iter__
        module._BaseDataLoaderIter.__next__ = __next__

    def build_from_configuration(self) -> None:
        """Let Hugging Face's `from_pretrained` build the model from its configuration, without weights."""
        model_class = sys.modules["transformers.modeling_utils"].PreTrainedModel
        recorder = self._recorder

        def from_pretrained(cls: Any, /, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
            if not hasattr(config, "to_dict"):
                config = cls.config_class.from_pretrained(config or name)
            dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
            if dtype in (None, "auto"):
                dtype = getattr(config, "dtype", None) if dtype else None
            if kwargs.get("quantization_config") or kwargs.get("load_in_8bit") or kwargs.get("load_in_4bit"):
                recorder.note("the model was built without its quantization, so its weights count in full")
            options = (
                {"attn_implementation": kwargs["attn_implementation"]}
                if "attn_implementation" in kwargs
                else {}
            )
            model = cls._from_config(config, **({"dtype": dtype} if dtype else {}), **options)
            return model.eval()

        model_class.from_pretrained = classmethod(from_pretrained)

    def _report(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        """Record where and why the script ended; the profiler prints it."""
        with contextlib.suppress(Exception):
            frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace)]
            path, line = _users_line(frames[::-1])
            if kind.__name__ == "BuildError":  # a mistake in --model or --input, which is no line of a script
                self._recorder.write(
                    "fake_stop", file="", line=0, code="", error=str(value), needs_value=False
                )
                return
            self._recorder.write(
                "fake_stop",
                file=path,
                line=line,
                code=linecache.getline(path, line).strip(),
                error=f"{kind.__name__}: {value}"[:400],
                needs_value=_needs_value(kind, value),
            )
            if _needs_value(kind, value):
                return
        self._previous_hook(kind, value, trace)


def _needs_value(kind: type[BaseException], value: BaseException) -> bool:
    names = ("NeedsValueError", "DataDependentOutputException", "DynamicOutputShapeException")
    clues = ("unallocated storage", "data pointer", ".numpy() is not supported", "meta tensor")
    return kind.__name__ in names or any(clue in str(value) for clue in clues)


def _users_line(frames: list[tuple[str, int]]) -> tuple[str, int]:
    """The innermost line of the user's own code, else of a library other than PyTorch."""
    own = [
        f for f in frames if not f[0].startswith((_LISTENER, "<")) and f"{os.sep}torch{os.sep}" not in f[0]
    ]
    users = [frame for frame in own if not frame[0].startswith(_LIBRARIES)]
    return (users or own or frames or [("", 0)])[0]


@contextlib.contextmanager
def real_tensors() -> Iterator[None]:
    """Make and compute real tensors inside."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def _step_always() -> None:
    """Let a gradient scaler step: it looks for infinite gradients, which fake ones do not show."""
    scaler: Any = sys.modules["torch.amp.grad_scaler"].GradScaler

    def _maybe_opt_step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    scaler._maybe_opt_step = _maybe_opt_step


def _convert_parameters() -> None:
    """Let `model.to` replace fake parameters, which PyTorch cannot change in place; tied ones stay tied."""
    torch: Any = sys.modules["torch"]

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = converted(parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def converted(parameter: Any, fn: Any) -> Any:
        with torch.no_grad():
            value = fn(parameter)
        if _layout(value) == _layout(parameter):
            return parameter
        known = parameter.__dict__.get("_trimtab_converted")
        if known is None or _layout(known) != _layout(value):
            known = torch.nn.Parameter(value, parameter.requires_grad)
            parameter._trimtab_converted = known
        return known

    torch.nn.Module._apply = _apply


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()


def _use_no_gpu() -> None:
    """Let calls that choose or wait for a GPU do nothing, and mixed precision for one apply on the CPU."""
    torch: Any = sys.modules["torch"]
    for name in ("set_device", "synchronize", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    torch.cuda.current_device = lambda: 0
    autocast: Any = torch.amp.autocast_mode.autocast
    original = autocast.__init__

    def __init__(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *args, **kwargs)

    autocast.__init__ = __init__


def _copy_real_tensors() -> None:
    """Let `deepcopy` of a real tensor give a real one."""
    torch: Any = sys.modules["torch"]
    original = torch.Tensor.__deepcopy__

    def __deepcopy__(self: Any, memo: Any) -> Any:  # noqa: N807
        if type(self) not in (torch.Tensor, torch.nn.Parameter):
            return original(self, memo)
        with real_tensors():
            return original(self, memo)

    torch.Tensor.__deepcopy__ = __deepcopy__


def _wrapper_class() -> Any:
    module_class: Any = sys.modules["torch"].nn.Module

    class DistributedDataParallel(module_class):  # type: ignore[misc]
        """Calls the module that it wraps, and exchanges nothing with other workers."""

        def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

        def no_sync(self) -> Any:
            return contextlib.nullcontext()

    return DistributedDataParallel


def replicate_nothing() -> None:
    """Let `DistributedDataParallel` exchange nothing: workers compare memory, which fake tensors lack."""
    wrapper = _wrapper_class()
    for name in ("torch.nn.parallel.distributed", "torch.nn.parallel"):
        if name in sys.modules:
            setattr(sys.modules[name], "DistributedDataParallel", wrapper)  # noqa: B010


def shard_nothing(recorder: ListenerRecorder) -> None:
    """Let FSDP leave models whole: facts are those of the complete model."""

    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.note(
            "the model was not sharded in the fake run, so its facts are those of the complete model"
        )
        return module

    fsdp: Any = sys.modules["torch.distributed.fsdp"]
    fsdp.fully_shard = fully_shard
    fsdp.FullyShardedDataParallel = _wrapper_class()


def connect_nothing() -> None:
    """Let `init_process_group` make a group whose messages go nowhere, of the size that was asked for."""
    distributed: Any = sys.modules["torch.distributed"]
    original = distributed.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        size = max(1, int(kwargs.get("world_size") or -1), int(os.environ.get("WORLD_SIZE", "1")))
        rank = max(0, int(kwargs.get("rank") or -1), int(os.environ.get("RANK", "0")))
        return original("fake", store=FakeStore(), rank=rank, world_size=size)

    distributed.init_process_group = init_process_group
