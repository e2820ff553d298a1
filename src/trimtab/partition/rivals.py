"""Other methods to split a model, to compare with: each proposes a device for every node.

The best plan that the proposals allow counts, by the same forecast as the search's.
A rival is a function from a graph, devices and a recipe to proposals, and a line in `RIVALS`.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.partition.devices import Devices
from trimtab.partition.forecast import cost_of, evaluate
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.node_times import NodeTimes
from trimtab.partition.plan import STATE_NUMBERS, Layout, Plan, PlanForecast, Recipe, Schedule, Stage
from trimtab.partition.problem import bytes_per_weight

if TYPE_CHECKING:
    from torch import nn


def repeated_block(path: str) -> str:
    """The outermost numbered module of a path (`h.3` of `h.3.attn.proj`); the path itself if it has none."""
    words = path.split(".")
    end = next((place for place, word in enumerate(words, 1) if word.isdigit()), len(words))
    return ".".join(words[:end])


def layers(graph: Graph) -> Ints:
    """The number of each node's layer, in the order in which layers begin.

    A layer is a repeated block, or a module outside of them; operations between two modules belong to the
    layer before. A graph without modules has one layer per node.
    """
    if not any(graph.blocks):
        return np.arange(len(graph))
    numbers: dict[str, int] = {}
    layer_of, current = [], 0
    for path in graph.blocks:
        if path:
            current = numbers.setdefault(repeated_block(path), len(numbers))
        layer_of.append(current)
    return np.array(layer_of, dtype=np.int64)


_SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
_NO_DEVICE = -1  # of outputs, which join the last stage


def stages_of(graph: Graph, device_of: Ints) -> tuple[Stage, ...]:
    """Consecutive stages, as few as a greedy look ahead finds; a device may get several.

    A device runs all its nodes whose inputs are ready. Next comes the device that can then run the largest
    share of its remaining nodes. Inputs run where they are first read, outputs in the last stage.
    """
    placed: list[int] = device_of.tolist()
    first = np.full(len(graph), len(graph), dtype=np.int64)
    np.minimum.at(first, graph.producer[graph.used], graph.user)
    ends = [node for node, kind in enumerate(graph.kinds) if kind == "output"]
    for node, kind in enumerate(graph.kinds):
        if kind == "output":
            placed[node] = _NO_DEVICE
        elif kind == "input" and first[node] < len(graph):
            placed[node] = int(device_of[first[node]])
    runs = list(_device_runs(graph, placed)) or [(int(device_of[0]), [])]
    runs[-1][1].extend(ends)
    return tuple(Stage(tuple(sorted(nodes)), ((device,),)) for device, nodes in runs)


def _device_runs(graph: Graph, device_of: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Devices and the nodes that each runs in one turn, in order."""
    following: list[list[int]] = [[] for _ in device_of]
    sources, targets, _ = graph.edges
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        following[source].append(target)
    waiting = np.bincount(targets, minlength=len(device_of)).tolist()
    ready: dict[int, list[int]] = {}
    remaining: dict[int, int] = {}
    for node, device in enumerate(device_of):
        remaining[device] = remaining.get(device, 0) + 1
        if waiting[node] == 0 and device != _NO_DEVICE:
            ready.setdefault(device, []).append(node)

    def runnable(device: int) -> list[int]:
        """Nodes that a device can run now without waiting for another device, in order."""
        queue = list(ready[device])
        heapify(queue)
        met: dict[int, int] = {}
        nodes = []
        while queue:
            node = heappop(queue)
            nodes.append(node)
            for target in following[node]:
                met[target] = met.get(target, 0) + 1
                if met[target] == waiting[target] and device_of[target] == device:
                    heappush(queue, target)
        return nodes

    while ready:
        turns = {device: runnable(device) for device in ready}
        device = max(turns, key=lambda name: (len(turns[name]) / remaining[name], -name))
        del ready[device]
        remaining[device] -= len(turns[device])
        for node in turns[device]:
            for target in following[node]:
                waiting[target] -= 1
                if waiting[target] == 0 and device_of[target] not in (device, _NO_DEVICE):
                    ready.setdefault(device_of[target], []).append(target)
        yield device, turns[device]


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


@dataclass(frozen=True, slots=True)
class Reached:
    """The plan with the highest throughput among those that fit; None where none fits.

    `throughputs` are samples per second of the best plan of each proposal, zero where none of it fits.
    """

    plan: Plan | None
    forecast: PlanForecast | None
    throughputs: tuple[float, ...]

    @property
    def throughput(self) -> float:
        """Samples per second; zero where nothing fits."""
        return max(self.throughputs, default=0.0)


def reached_by(proposals: Iterable[Ints], graph: Graph, devices: Devices, recipe: Recipe) -> Reached:
    """The best of all proposals, micro-batch counts, schedules and choices of recomputation."""
    times = NodeTimes(graph, recipe)
    best: tuple[Plan, PlanForecast] | None = None
    throughputs = []
    for device_of in proposals:
        proposed = _best_plan(plans_of(graph, device_of, recipe), graph, devices, recipe, times)
        throughputs.append(0.0 if proposed is None else proposed[1].throughput)
        if proposed is not None and (best is None or proposed[1].throughput > best[1].throughput):
            best = proposed
    plan, forecast = best or (None, None)
    return Reached(plan, forecast, tuple(throughputs))


def _best_plan(
    plans: Iterator[Plan], graph: Graph, devices: Devices, recipe: Recipe, times: NodeTimes
) -> tuple[Plan, PlanForecast] | None:
    """Best plan that fits: simulated by increasing lower bound until no bound is below the best."""
    possible: list[tuple[float, int, Plan]] = []
    for plan in plans:
        cost = cost_of(graph, devices, recipe, plan, times=times)
        if cost.short <= 0.0:
            # No schedule is faster: a micro-batch passes all stages, and the busiest device never waits.
            load = plan.microbatches * (cost.forward + cost.backward) + cost.once
            bound = max(cost.latency, float(np.bincount(cost.rows, load).max()))
            possible.append((bound, len(possible), plan))
    best: tuple[Plan, PlanForecast] | None = None
    for bound, _, plan in sorted(possible):
        if best is not None and bound >= best[1].seconds:
            break
        forecast = evaluate(graph, devices, recipe, plan, times=times)
        if forecast.fits and (best is None or forecast.seconds < best[1].seconds):
            best = plan, forecast
    return best


def equal(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Equal numbers of layers, and equal numbers of nodes (names may not show the layers)."""
    for number in (layers(graph), np.arange(len(graph))):
        yield number * len(devices) // (int(number.max()) + 1)


def single(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Everything on one device, for each distinct kind of device."""
    tried = set()
    for number, device in enumerate(devices.devices):
        facts = (device.kind, device.memory, device.memory_bandwidth, *device.peak.items(), device.cores)
        if facts not in tried:
            tried.add(facts)
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

    Nodes weigh the time they take or the bytes they hold (of one sample, and of a micro-batch in training),
    edges the bytes they carry. The part of device d is as large as its share of all speed or memory.
    """
    if len(devices) == 1:
        yield np.zeros(len(graph), dtype=np.int64)
        return
    times, samples = NodeTimes(graph, recipe), max(1, recipe.batch // _MICROBATCHES)
    took = [times.on(device, samples) for device in devices.devices]
    seconds = np.array([node.forward + node.backward for node in took])
    by_time, speed = _share(seconds.mean(axis=0)), _share(1.0 / seconds.sum(axis=1))
    room = _share(devices.memory)
    in_training = graph.parameters * sum(bytes_per_weight(recipe, Layout()))
    weighings = [(by_time, speed)]
    for held in (
        4.0 * graph.parameters + graph.buffers + graph.saved,
        in_training + graph.buffers + graph.saved * samples,
    ):
        by_memory = _share(held)
        weighings += [(by_memory, room), ((by_time + by_memory) / 2, (speed + room) / 2)]
    for node_share, device_share in weighings:
        part = _metis_parts(graph, node_share, device_share)
        yield part
        yield _flowing_on(graph, part)


def _share(amounts: Floats) -> Floats:
    return amounts / max(float(amounts.sum()), 1e-30)


def _metis_parts(graph: Graph, node_share: Floats, device_share: Floats) -> Ints:
    try:
        import pymetis
    except ImportError as error:
        raise MissingDependencyError("a cut by METIS needs pymetis: pip install 'trimtab[rivals]'") from error
    # METIS takes the adjacency both ways (CSR), with bytes as whole numbers of at least one.
    sources, targets, size = graph.edges
    pairs, where = np.unique(np.stack((sources, targets)), axis=1, return_inverse=True)
    carried = np.bincount(where.ravel(), weights=size, minlength=pairs.shape[1])
    carried = np.maximum(1, np.round(carried / max(float(carried.sum()), 1.0) * _UNITS)).astype(np.int64)
    one, other = np.concatenate((pairs, pairs[::-1]), axis=1)
    order = np.argsort(one, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(one, minlength=len(graph)))))
    with _stdout_discarded():
        partition = pymetis.part_graph(
            len(device_share),
            pymetis.CSRAdjacency(adj_starts=starts.tolist(), adjacent=other[order].tolist()),
            vweights=(np.round(node_share * _UNITS).astype(np.int64)).tolist(),
            eweights=np.tile(carried, 2)[order].tolist(),
            tpwgts=(device_share / device_share.sum()).tolist(),
            options=pymetis.Options(seed=0, ufactor=_UNEVEN),
        )
    return np.array(partition.vertex_part, dtype=np.int64)


def _flowing_on(graph: Graph, part: Ints) -> Ints:
    """Parts in the order of their mean place in the graph; no node in an earlier part than its inputs."""
    place = np.arange(len(graph))
    order = np.array(sorted(set(part.tolist()), key=lambda number: float(place[part == number].mean())))
    rank = np.empty(int(part.max()) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    turn = rank[part]
    sources, targets, _ = graph.edges
    for use in np.argsort(targets, kind="stable"):
        turn[targets[use]] = max(turn[targets[use]], turn[sources[use]])
    return order[turn]


@contextmanager
def _stdout_discarded() -> Iterator[None]:
    """Discard the file descriptor's output: METIS, written in C, reports empty parts there."""
    sys.stdout.flush()
    saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
        os.close(null)


_SCALES = (1.0, 0.8, 0.6, 0.4)
_FEW = 8  # devices, of which every first few are tried
_BLOCK = "Block"


def accelerate(graph: Graph, devices: Devices, recipe: Recipe, balanced: bool) -> Iterator[Ints]:
    """Device maps of Accelerate, `balanced` or sequential; none where weights would go to a disk.

    It counts weights only, and training needs more: so it is given less and less memory. It balances over
    all devices that it sees: so it is also shown only the first few. Repeated blocks are not split, as its
    documentation advises for residual connections; and once more with splitting.
    """
    try:
        from accelerate.utils import get_balanced_memory, infer_auto_device_map

        from trimtab.partition.capture.capturing import quiet
    except ImportError as error:
        raise MissingDependencyError(
            "Accelerate's device map needs accelerate and torch: pip install 'trimtab[learn,rivals]'"
        ) from error
    model, tried = stand_in(graph), set()
    for limits in _memory_limits(devices, recipe):
        for unsplit in ([_BLOCK], None):
            with quiet():  # it warns of devices that this machine does not have
                memory = dict(enumerate(limits))
                if balanced:
                    memory = get_balanced_memory(model, memory, no_split_module_classes=unsplit)
                mapped = infer_auto_device_map(model, memory, no_split_module_classes=unsplit)
            if "disk" not in mapped.values():
                device_of = _devices_of_nodes(graph, mapped)
                if device_of.tobytes() not in tried:
                    tried.add(device_of.tobytes())
                    yield device_of


def _memory_limits(devices: Devices, recipe: Recipe) -> Iterator[list[int]]:
    """Bytes of each device that weights may take, so that gradients and state fit too; and less."""
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

    block: Any = type(_BLOCK, (nn.Module,), {})
    root = nn.Module()
    shared = [nn.Parameter(torch.empty(int(tie.parameters), device="meta")) for tie in graph.ties]
    own = graph.parameters.copy()
    for tie in graph.ties:
        own[list(tie.nodes)] -= tie.parameters
    for node, path in enumerate(_paths(graph)):
        module, in_block = root, False
        for word in path.split(".") if path else []:
            if word not in module._modules:
                module.add_module(word, block() if word.isdigit() and not in_block else nn.Module())
            in_block |= word.isdigit()
            module = module.get_submodule(word)
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
    """The module of each node; in a graph without modules, each node is one."""
    return list(graph.blocks) if any(graph.blocks) else [f"node_{node}" for node in range(len(graph))]


def _devices_of_nodes(graph: Graph, mapped: Mapping[str, int]) -> Ints:
    """The device of each node's innermost mapped module, else of its own weights, else of its last input."""
    needs = [-1] * len(graph)
    sources, targets, _ = graph.edges
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        needs[target] = max(needs[target], source)
    device_of: list[int] = []
    for node, path in enumerate(_paths(graph)):
        words = path.split(".") if path else []
        names = [".".join(words[:end]) for end in range(len(words), -1, -1)]
        names.append(".".join([*words, f"weights_{node}"]))
        device = next((mapped[name] for name in names if name in mapped), None)
        if device is None:
            device = device_of[needs[node]] if needs[node] >= 0 else min(mapped.values())
        device_of.append(device)
    return np.array(device_of, dtype=np.int64)


Rival = Callable[[Graph, Devices, Recipe], Iterable[Ints]]

RIVALS: dict[str, Rival] = {
    "equal": equal,
    "accelerate-balanced": partial(accelerate, balanced=True),
    "accelerate-sequential": partial(accelerate, balanced=False),
    "metis": metis,
    "random": random_cuts,
    "single": single,
}
