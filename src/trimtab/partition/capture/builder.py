"""Calls a user's function that builds a model, on the meta device if possible: even the largest fits."""

import ast
import copy
import importlib
import importlib.util
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

from trimtab.core import BadInputError, NotFoundError, did_you_mean, one_line
from trimtab.partition.capture.record import tensors_in

_TARGET = re.compile(r"(?P<place>.+?):(?P<function>\w+)(?P<call>\(.*\))?", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A model, its example inputs and its name; `source` is the module of its builder."""

    model: nn.Module
    inputs: Any
    name: str
    source: ModuleType


def load_builder(target: str, real: bool = False) -> Built:
    """Build `file.py:function` or `package.module:function`, also with arguments: `model.py:build(layers=4)`.

    The model is on the meta device unless `real`.
    """
    place, name, args, kwargs = _parsed(target)
    source = _imported(place)
    function = getattr(source, name, None)
    if not callable(function):
        near = did_you_mean(name, [known for known in vars(source) if not known.startswith("_")])
        raise NotFoundError(f'there is no function "{name}" in {place}{near}')
    built = _called(target, lambda: function(*args, **kwargs), real)
    model, inputs = _checked(target, built)
    if not real:
        model, inputs = meta_copy(model), moved(inputs, "meta")
    title = Path(place.removesuffix(".py")).name.rpartition(".")[2] if name == "build" else name
    return Built(model, inputs, title, source)


def builder_source(target: str) -> ModuleType:
    """The module of a builder, imported but not called."""
    return _imported(_parsed(target)[0])


def resized(inputs: Any, samples: int) -> Any:
    """Inputs with another number of samples: tensors with a batch dimension are repeated or cut."""
    batch = next((tensor.shape[0] for tensor in tensors_in(inputs) if tensor.dim()), None)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != batch:
            return tensor
        return tensor[torch.arange(samples, device=tensor.device) % batch]

    return changed(inputs, change)


def _parsed(target: str) -> tuple[str, str, list[Any], dict[str, Any]]:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise BadInputError(
            f'"{one_line(target)}" does not name a builder; write file.py:function'
            " or file.py:function(layers=4)"
        )
    try:
        call = ast.parse(f"_{match['call'] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
            raise ValueError
        args = [ast.literal_eval(arg) for arg in call.args]
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise BadInputError(
            f'the arguments in "{one_line(target)}" are not plain values;'
            ' write them like (layers=4, name="x")'
        ) from None
    return match["place"], match["function"], args, kwargs


def _imported(place: str) -> ModuleType:
    path = Path(place)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise NotFoundError(f"there is no file {place}; name the Python file that builds the model")
    folder = str(path.resolve().parent) if is_file else str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        if not is_file:
            return importlib.import_module(place)
        name = f"_trimtab_model_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInputError(f"{place} cannot be imported: {_described(error)}") from None
    finally:
        sys.path.remove(folder)


def _called(target: str, function: Callable[[], Any], real: bool) -> Any:
    """Result of the builder, without memory or, if it needs values, with as little as possible."""
    ways: list[AbstractContextManager[Any]] = [nullcontext()]
    if not real:
        ways = [torch.device("meta"), WeightsOnMeta(), FakeTensorMode(), limited_memory()]
    problem: BaseException | None = None
    for way in ways:
        try:
            with way:
                return function()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problem = error
    raise BadInputError(f"{target} raises {_described(problem)}")


def _checked(target: str, built: Any) -> tuple[nn.Module, Any]:
    if isinstance(built, nn.Module):
        raise BadInputError(
            f"{target} returns a model without example inputs; return (model, inputs), where inputs is a "
            f"tensor or a tuple of tensors that the model can be called with"
        )
    if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], nn.Module)):
        raise BadInputError(
            f"{target} returns {type(built).__name__} instead of a model; return (model, inputs) with a "
            f"torch.nn.Module"
        )
    return built


def _described(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {one_line(str(error))[:200]}"


LARGEST_REAL_MODEL = 8 * 2**30
"""Bytes of memory for a model that cannot be built or run without values."""
_FACTORIES = {
    *(torch.empty, torch.empty_strided, torch.full, torch.ones),
    *(torch.rand, torch.randint, torch.randn, torch.zeros),
}


class WeightsOnMeta(TorchFunctionMode):
    """Factories of weights allocate no memory; ranges and lists, whose values builders read, do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


@contextmanager
def limited_memory(size: int = LARGEST_REAL_MODEL) -> Iterator[None]:
    """Limit this process to `size` further bytes: a larger allocation fails instead of the machine."""
    import psutil

    before = resource.getrlimit(resource.RLIMIT_AS)
    limits = [psutil.Process().memory_info().vms + size]
    limits += [limit for limit in before if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def meta_copy(model: nn.Module) -> nn.Module:
    """Copy of the model on the meta device, without values."""
    return _copy(model, as_meta)


def fake_copy(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Copy of the model with fake CPU tensors, so that tensors which its code creates fit to them."""
    return _copy(model, lambda tensor: as_fake(tensor, mode))


def as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor like it on the meta device, without values."""
    bare = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
    return _parameter_like(tensor, bare)


def as_fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A fake CPU tensor like it, without values."""
    with mode:
        bare = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return _parameter_like(tensor, bare)


def moved(value: Any, device: str) -> Any:
    """Nested inputs on a device; meta tensors get random values (zeros for integers)."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if device == "meta":
            return as_meta(tensor.detach())
        if not tensor.is_meta:
            return tensor.detach().to(device)
        fill = torch.randn if tensor.is_floating_point() else torch.zeros
        return fill(tensor.shape, dtype=tensor.dtype, device=device)

    return changed(value, move)


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: changed(inner, change) for name, inner in value.items()}
    return tuple(changed(inner, change) for inner in value) if isinstance(value, list | tuple) else value


def _parameter_like(tensor: torch.Tensor, bare: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(bare, requires_grad=tensor.requires_grad)
    return bare


def _copy(model: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    tensors = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): change(tensor) for tensor in tensors})
