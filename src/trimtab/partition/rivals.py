"""Other ways to split a model, to compare with: each proposes a device for every node.

The best plan that the proposals allow counts, by the same forecast as the search's.
A rival is a function from a graph, devices and a recipe to proposals, and a line in `RIVALS`.
"""

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.partition.devices import Devices
from trimtab.partition.forecast import cost_of, evaluate
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.node_times import NodeTimes
from trimtab.partition.plan import STATE_NUMBERS, Forecast, Layout, Plan, Recipe, Schedule, Stage
from trimtab.partition.problem import Cost, bytes_per_weight

if TYPE_CHECKING:
    from torch import nn


def repeated_block(path: str) -> str:
    """The outermost numbered module of a path (`h.3` of `h.3.attn.proj`); the path itself where none is."""
    words = path.split(".")
    for place, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[: place + 1])
    return path


def layers(graph: Graph) -> Ints:
    """The number of each node's layer, in the order in which layers begin.

    A layer is a repeated block, or a module outside of them; what the model does itself between two modules
    belongs to the layer before. A graph without modules has a layer per node.
    """
    if not any(graph.blocks):
        return np.arange(len(graph))
    numbers: dict[str, int] = {}
    found, now = [], 0
    for path in graph.blocks:
        if path:
            now = numbers.setdefault(repeated_block(path), len(numbers))
        found.append(now)
    return np.array(found, dtype=np.int64)


_SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
_AT_THE_END = -1  # instead of a device


def stages_of(graph: Graph, device_of: Ints) -> tuple[Stage, ...]:
    """Stages one after the other, as few as a simple look ahead finds; a device may get several.

    As long as the device at hand has nodes whose needs are met, it goes on; then comes the one that can do
    the largest share of what it has left. Inputs go where they are first used, outputs where all ends.
    """
    runs = list(_Progress(graph, _with_ends_moved(graph, device_of)).runs())
    ends = [node for node, kind in enumerate(graph.kinds) if kind == "output"]
    if not runs:
        runs = [(int(device_of[0]), [])]
    runs[-1][1].extend(ends)
    return tuple(Stage(tuple(sorted(nodes)), ((device,),)) for device, nodes in runs)


def plans_of(graph: Graph, device_of: Ints, recipe: Recipe) -> Iterator[Plan]:
    """The stages with every number of micro-batches, both schedules, with and without recomputation."""
    stages = stages_of(graph, device_of)
    for microbatches in microbatch_counts(recipe.batch):
        for schedule in _SCHEDULES if recipe.training else _SCHEDULES[:1]:
            for recompute in (False, True) if recipe.training else (False,):
                shares = (recipe.batch // microbatches,)
                yield Plan(stages, shares, microbatches, schedule, recompute=recompute)


def microbatch_counts(batch: int) -> list[int]:
    """Powers of two that divide the batch."""
    return [2**power for power in range(batch.bit_length()) if batch % 2**power == 0]


def _with_ends_moved(graph: Graph, device_of: Ints) -> list[int]:
    """Devices of nodes, with each input on the device of its first reader, and none for outputs."""
    placed: list[int] = device_of.tolist()
    first = np.full(len(graph), len(graph), dtype=np.int64)
    np.minimum.at(first, graph.producer[graph.used], graph.user)
    for node, kind in enumerate(graph.kinds):
        if kind == "output":
            placed[node] = _AT_THE_END
        elif kind == "input" and first[node] < len(graph):
            placed[node] = int(device_of[first[node]])
    return placed


class _Progress:
    """Nodes that have run, that could run next on each device, and that each device has left."""

    def __init__(self, graph: Graph, device_of: list[int]) -> None:
        self._device_of = device_of
        self._following: list[list[int]] = [[] for _ in device_of]
        self._waiting = [0] * len(device_of)
        sources, targets, _ = graph.edges
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._following[source].append(target)
            self._waiting[target] += 1
        self._ready: dict[int, list[int]] = {}
        self._left: dict[int, int] = {}
        for node, device in enumerate(device_of):
            self._left[device] = self._left.get(device, 0) + 1
            if self._waiting[node] == 0:
                self._make_ready(node)

    def runs(self) -> Iterator[tuple[int, list[int]]]:
        """Devices and the nodes they run, one turn after the other."""
        while self._ready:
            possible = {device: self._possible(device) for device in self._ready}
            device = max(possible, key=lambda each: (len(possible[each]) / self._left[each], -each))
            self._run(device, possible[device])
            yield device, possible[device]

    def _possible(self, device: int) -> list[int]:
        """Nodes that a device can run now without waiting for another, in order."""
        queue = list(self._ready[device])
        heapify(queue)
        met: dict[int, int] = {}
        run = []
        while queue:
            node = heappop(queue)
            run.append(node)
            for target in self._following[node]:
                met[target] = met.get(target, 0) + 1
                if met[target] == self._waiting[target] and self._device_of[target] == device:
                    heappush(queue, target)
        return run

    def _run(self, device: int, nodes: list[int]) -> None:
        del self._ready[device]
        self._left[device] -= len(nodes)
        for node in nodes:
            for target in self._following[node]:
                self._waiting[target] -= 1
                if self._waiting[target] == 0 and self._device_of[target] != device:
                    self._make_ready(target)

    def _make_ready(self, node: int) -> None:
        if self._device_of[node] != _AT_THE_END:
            self._ready.setdefault(self._device_of[node], []).append(node)


@dataclass(frozen=True, slots=True)
class Reached:
    """The plan with the highest throughput of those that fit, None where none does.

    `throughputs` are samples per second of the best plan of each proposal, zero where none of it fits.
    """

    plan: Plan | None
    forecast: Forecast | None
    throughputs: tuple[float, ...]

    @property
    def throughput(self) -> float:
        """Samples per second; zero where nothing fits."""
        return 0.0 if self.forecast is None else self.forecast.throughput


def reached_by(proposals: Iterable[Ints], graph: Graph, devices: Devices, recipe: Recipe) -> Reached:
    """The best of all proposals, micro-batch counts, schedules and choices of recomputation."""
    times = NodeTimes(graph, recipe)
    best: tuple[Plan, Forecast] | None = None
    throughputs = []
    for device_of in proposals:
        found = _best_plan(plans_of(graph, device_of, recipe), graph, devices, recipe, times)
        throughputs.append(0.0 if found is None else found[1].throughput)
        if found is not None and (best is None or found[1].throughput > best[1].throughput):
            best = found
    plan, forecast = best or (None, None)
    return Reached(plan, forecast, tuple(throughputs))


def _best_plan(
    plans: Iterator[Plan], graph: Graph, devices: Devices, recipe: Recipe, times: NodeTimes
) -> tuple[Plan, Forecast] | None:
    """Best plan that fits: simulated by increasing lower bound until no bound is below the best."""
    possible: list[tuple[float, int, Plan]] = []
    for plan in plans:
        cost = cost_of(graph, devices, recipe, plan, times=times)
        if cost.short <= 0.0:
            possible.append((_at_least_seconds(cost), len(possible), plan))
    best: tuple[Plan, Forecast] | None = None
    for at_least, _, plan in sorted(possible):
        if best is not None and at_least >= best[1].seconds:
            break
        forecast = evaluate(graph, devices, recipe, plan, times=times)
        if forecast.fits and (best is None or forecast.seconds < best[1].seconds):
            best = plan, forecast
    return best


def _at_least_seconds(cost: Cost) -> float:
    """No schedule is faster: a micro-batch passes all stages, and the busiest device never waits."""
    load = cost.problem.layout.microbatches * (cost.forward + cost.backward) + cost.once
    return max(cost.latency, float(np.bincount(cost.rows, load).max()))


def equal(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Equal numbers of layers; and equal numbers of nodes, where names do not show the layers."""
    for number in (layers(graph), np.arange(len(graph))):
        yield number * len(devices) // (int(number.max()) + 1)


def single(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Everything on each device in turn; of devices that are the same, on the first."""
    tried = set()
    for number, device in enumerate(devices.devices):
        same = (device.kind, device.memory, device.memory_bandwidth, tuple(device.peak.items()), device.cores)
        if same not in tried:
            tried.add(same)
            yield np.full(len(graph), number, dtype=np.int64)


SEEDS = 5


def random_cuts(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """One split per seed, over all devices or, with few layers, as many as there are layers."""
    number = layers(graph)
    count = int(number.max()) + 1
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        stages = min(len(devices), count)
        cuts = np.sort(draw.choice(np.arange(1, count), stages - 1, replace=False))
        yield draw.permutation(len(devices))[np.searchsorted(cuts, number, side="right")]


_MICROBATCHES = 8  # of a step, where time per node is needed
_UNITS = 1_000_000  # of the sum of all weights: METIS counts in whole numbers
_UNEVEN = 30  # thousandths by which a part may be too large


def metis(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Parts by speed, by memory and by both; each as METIS cuts, and repaired so that nothing flows back.

    Nodes weigh the time they take or what they hold (with one sample, and with all that training keeps of a
    micro-batch), edges the bytes they carry. The part of device d is as large as its share of all speed or
    memory.
    """
    if len(devices) == 1:
        yield np.zeros(len(graph), dtype=np.int64)
        return
    by_time, speed = _times(graph, devices, recipe)
    room = _share(devices.memory)
    weighings = [(by_time, speed)]
    for by_memory in _memories(graph, recipe):
        weighings += [(by_memory, room), ((by_time + by_memory) / 2, (speed + room) / 2)]
    for node_share, device_share in weighings:
        part = _parts(graph, node_share, device_share)
        yield part
        yield _flowing_on(graph, part)


def _memories(graph: Graph, recipe: Recipe) -> Iterator[Floats]:
    """Each node's share of what the model holds: with one sample, and in a step of training."""
    yield _share(4.0 * graph.parameters + graph.buffers + graph.saved)
    samples = max(1, recipe.batch // _MICROBATCHES)
    weights = graph.parameters * sum(bytes_per_weight(recipe, Layout()))
    yield _share(weights + graph.buffers + graph.saved * samples)


def _times(graph: Graph, devices: Devices, recipe: Recipe) -> tuple[Floats, Floats]:
    """Each node's share of the time of a micro-batch, and each device's share of all speed."""
    times = NodeTimes(graph, recipe)
    samples = max(1, recipe.batch // _MICROBATCHES)
    took = [times.on(device, samples) for device in devices.devices]
    seconds = np.array([each.forward + each.backward for each in took])
    return _share(seconds.mean(axis=0)), _share(1.0 / seconds.sum(axis=1))


def _share(amounts: Floats) -> Floats:
    return amounts / max(float(amounts.sum()), 1e-30)


def _parts(graph: Graph, node_share: Floats, device_share: Floats) -> Ints:
    try:
        import pymetis
    except ImportError as error:
        raise MissingDependencyError("a cut by METIS needs pymetis: pip install 'trimtab[rivals]'") from error
    starts, neighbours, bytes_between = _neighbours(graph)
    with _silenced():
        found = pymetis.part_graph(
            len(device_share),
            pymetis.CSRAdjacency(adj_starts=starts.tolist(), adjacent=neighbours.tolist()),
            vweights=(np.round(node_share * _UNITS).astype(np.int64)).tolist(),
            eweights=bytes_between.tolist(),
            tpwgts=(device_share / device_share.sum()).tolist(),
            options=pymetis.Options(seed=0, ufactor=_UNEVEN),
        )
    return np.array(found.vertex_part, dtype=np.int64)


def _neighbours(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Adjacency in METIS's format (CSR), both ways, with bytes as whole numbers of at least one."""
    sources, targets, size = graph.edges
    pairs, where = np.unique(np.stack((sources, targets)), axis=1, return_inverse=True)
    carried = np.bincount(where.ravel(), weights=size, minlength=pairs.shape[1])
    carried = np.maximum(1, np.round(carried / max(float(carried.sum()), 1.0) * _UNITS)).astype(np.int64)
    one, other = np.concatenate((pairs, pairs[::-1]), axis=1)
    order = np.argsort(one, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(one, minlength=len(graph)))))
    return starts, other[order], np.tile(carried, 2)[order]


def _flowing_on(graph: Graph, part: Ints) -> Ints:
    """Parts in the order of their mean place in the graph, every node in that of what it needs, or later."""
    place = np.arange(len(graph))
    order = np.array(sorted(set(part.tolist()), key=lambda each: float(place[part == each].mean())))
    rank = np.empty(int(part.max()) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    turn = rank[part]
    sources, targets, _ = graph.edges
    for use in np.argsort(targets, kind="stable"):
        turn[targets[use]] = max(turn[targets[use]], turn[sources[use]])
    return order[turn]


@contextmanager
def _silenced() -> Iterator[None]:
    """METIS, written in C, complains on standard output of parts that stay empty."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


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

    It counts weights only, and training needs more than those: so it is given less and less memory. It
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
    for limits in _memory_limits(devices, recipe):
        for whole in ([_BLOCK], None):
            with _quiet():
                memory = dict(enumerate(limits))
                if balanced:
                    memory = get_balanced_memory(model, memory, no_split_module_classes=whole)
                found = infer_auto_device_map(model, memory, no_split_module_classes=whole)
            if "disk" not in found.values():
                device_of = _devices_of_nodes(graph, found)
                if device_of.tobytes() not in seen:
                    seen.add(device_of.tobytes())
                    yield device_of


def _memory_limits(devices: Devices, recipe: Recipe) -> Iterator[list[int]]:
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


Rival = Callable[[Graph, Devices, Recipe], Iterable[Ints]]

RIVALS: dict[str, Rival] = {
    "equal": equal,
    "accelerate-balanced": accelerate_balanced,
    "accelerate-sequential": accelerate_sequential,
    "metis": metis,
    "random": random_cuts,
    "single": single,
}
