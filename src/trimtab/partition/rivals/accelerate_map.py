"""Hugging Face Accelerate's device map, by the real package, for a stand-in that has the model's modules."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import STATE_NUMBERS, Recipe

if TYPE_CHECKING:
    from torch import nn

_SCALES = (1.0, 0.8, 0.6, 0.4)
_FEW = 8  # devices, of which every first few are tried
_BLOCK = "Block"


def accelerate_balanced(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """`device_map="balanced"`: as many bytes of weights for everyone, as far as they have them."""
    yield from _maps(graph, devices, recipe, balanced=True)


def accelerate_sequential(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """`device_map="sequential"`: one device is filled after the other."""
    yield from _maps(graph, devices, recipe, balanced=False)


def _maps(graph: Graph, devices: Devices, recipe: Recipe, balanced: bool) -> Iterator[Ints]:
    """Its answers to all that somebody might tell it; none where weights would go to a disk.

    It counts weights only, and training needs more than those: so it is told less and less memory. It
    balances over all devices that it sees: so it is also shown only the first few. Blocks that repeat are
    never split, as its documentation advises for what has residual connections; and once more with splitting.
    """
    try:
        from accelerate.utils import get_balanced_memory, infer_auto_device_map
    except ImportError as error:
        raise MissingDependencyError(
            "Accelerate's device map needs accelerate and torch: pip install 'trimtab[learn,rivals]'"
        ) from error
    model, seen = stand_in(graph), set()
    for told in _told_memories(devices, recipe):
        for whole in ([_BLOCK], None):
            with _quiet():
                memory = dict(enumerate(told))
                if balanced:
                    memory = get_balanced_memory(model, memory, no_split_module_classes=whole)
                found = infer_auto_device_map(model, memory, no_split_module_classes=whole)
            if "disk" not in found.values():
                device_of = _devices_of_nodes(graph, found)
                if device_of.tobytes() not in seen:
                    seen.add(device_of.tobytes())
                    yield device_of


def _told_memories(devices: Devices, recipe: Recipe) -> Iterator[list[int]]:
    """Bytes of each device that weights may take, so that what belongs to them fits too; and less."""
    # Of what training keeps (the weight, its gradient, the optimizer's state), Accelerate sees the weight.
    weight_share = 1.0 / (2 + STATE_NUMBERS[recipe.optimizer]) if recipe.training else 1.0
    total = len(devices)
    counts = range(1, total + 1) if total <= _FEW else (total // 2, total * 3 // 4, total)
    for count in counts:
        for scale in _SCALES:
            yield [int(size * weight_share * scale) for size in devices.memory[:count].tolist()]


def stand_in(graph: Graph) -> "nn.Module":
    """Modules with the graph's names and sizes of weights, on the meta device; ties are one parameter."""
    import torch
    from torch import nn

    block = type(_BLOCK, (nn.Module,), {})
    root = nn.Module()
    shared = [nn.Parameter(torch.empty(int(tie.parameters), device="meta")) for tie in graph.ties]
    own = graph.parameters.copy()
    for tie in graph.ties:
        own[list(tie.nodes)] -= tie.parameters
    for node, path in enumerate(_paths(graph)):
        module = _module_at(root, path, block)
        if own[node] > 0:
            weights = nn.Parameter(torch.empty(int(own[node]), device="meta"))
            module.register_parameter(f"weights_{node}", weights)
        if graph.buffers[node] > 0:
            size = int(graph.buffers[node])
            module.register_buffer(f"buffer_{node}", torch.empty(size, device="meta", dtype=torch.uint8))
        for number, tie in enumerate(graph.ties):
            if node in tie.nodes:
                module.register_parameter(f"tied_{node}_{number}", shared[number])
    return root


def _paths(graph: Graph) -> list[str]:
    """The module of each node; of a graph without modules, each node is one."""
    return list(graph.blocks) if any(graph.blocks) else [f"node_{node}" for node in range(len(graph))]


def _module_at(root: "nn.Module", path: str, block: Any) -> "nn.Module":
    """The module there, made where it is not yet; the outermost numbered one on the way is a block."""
    from torch import nn

    module: nn.Module = root
    walked: list[str] = []
    for word in path.split(".") if path else []:
        outermost = word.isdigit() and not any(each.isdigit() for each in walked)
        walked.append(word)
        if word not in module._modules:
            module.add_module(word, block() if outermost else nn.Module())
        module = module.get_submodule(word)
    return module


def _devices_of_nodes(graph: Graph, found: Mapping[str, int]) -> Ints:
    """The device of each node's module or, if that is split, of the weights it has or what it last needs."""
    needs = [-1] * len(graph)
    sources, targets, _ = graph.edges
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        needs[target] = max(needs[target], source)
    device_of: list[int] = []
    for node, path in enumerate(_paths(graph)):
        device = _mapped(found, path, node)
        if device is None:
            device = device_of[needs[node]] if needs[node] >= 0 else min(found.values())
        device_of.append(device)
    return np.array(device_of, dtype=np.int64)


def _mapped(found: Mapping[str, int], path: str, node: int) -> int | None:
    """The device of the innermost part of a path that the map names."""
    words = path.split(".") if path else []
    for end in range(len(words), -1, -1):
        device = found.get(".".join(words[:end]))
        if device is not None:
            return device
    return found.get(".".join([*words, f"weights_{node}"]))


@contextmanager
def _quiet() -> Iterator[None]:
    """It warns of devices that this machine has not."""
    logger = logging.getLogger("accelerate.utils.modeling")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
