"""Explains in one sentence by how much a model does not fit, and which change would make it fit."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from math import ceil

import numpy as np

from trimtab.core import TrimtabError, format_bytes
from trimtab.partition.devices import Devices, default_network, islands, with_more
from trimtab.partition.explain import device_names
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Layout, Recipe, Solution
from trimtab.partition.problem import bytes_per_weight, usable_memory
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.search import ReportProgress, SearchSettings

_TIME_LIMIT = 20.0
"""Seconds for trying changes."""
_MOST_NAMED = 3
_MOST_MORE = 512
_DEFAULTS = SearchSettings()
_SIXTEEN_BIT = ("bf16", "fp16")

Solve = Callable[[Devices, Recipe, SearchSettings, ReportProgress], Solution]
"""The solver of one graph; its progress callback may raise to stop it."""
Fits = Callable[[Devices, Recipe, SearchSettings], bool]


class _TimeLimitError(Exception):
    """Stops a search that takes too long."""


def why_not(solution: Solution, settings: SearchSettings, solve: Solve) -> str:
    """Sentence on a plan that does not fit: disconnected, or too large and by how much."""
    graph, devices, recipe, islets = (
        solution.graph,
        solution.devices,
        solution.recipe,
        islands(solution.devices),
    )
    deadline = time.monotonic() + _TIME_LIMIT

    def check_time(*progress: object) -> None:
        if time.monotonic() > deadline:
            raise _TimeLimitError

    def fits(devices: Devices, recipe: Recipe, settings: SearchSettings) -> bool:
        try:
            check_time()
            quick = replace(settings, finalists=1, effort=QUICK)
            return solve(devices, recipe, quick, check_time).forecast.fits
        except (TrimtabError, _TimeLimitError):
            return False

    if len(islets) > 1:
        missing, network = devices.bandwidth <= 0, default_network()
        devices = Devices(
            devices.devices,
            np.where(missing, network.bandwidth, devices.bandwidth),
            np.where(missing, network.latency, devices.latency),
        )
        if fits(devices, recipe, settings):
            apart = " and ".join(device_names(devices, island) for island in islets[:3])
            return (
                f"{graph.name} does not fit on any of the parts that no link joins, {apart}; give"
                " --network, or links in the devices' file"
            )
    changes = list(islice(_changes(graph, devices, recipe, settings, fits), _MOST_NAMED))
    if changes:
        hint = f"it would fit {', or '.join(changes)}"
    else:
        largest = max(devices.devices, key=lambda device: device.memory)
        count = ceil(_least_bytes(graph, recipe) / usable_memory(largest))
        state = "weights, gradients and optimizer state" if recipe.training else "weights"
        hint = f"its {state} alone fill {count:,} {largest.kind}"
    worst = max(solution.forecast.uses, key=lambda use: use.memory - usable_memory(devices[use.device]))
    room = usable_memory(devices[worst.device])
    return (
        f"{graph.name} does not fit: even the best split found needs {format_bytes(worst.memory)} on"
        f" {devices[worst.device].name}, which is {format_bytes(worst.memory - room)} more than the"
        f" {format_bytes(room)} it can use; {hint}"
    )


def _least_bytes(graph: Graph, recipe: Recipe) -> float:
    """Bytes of one copy of the weights with their gradients and optimizer state."""
    return graph.total_parameters * sum(bytes_per_weight(recipe, Layout()))


def _changes(
    graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings, fits: Fits
) -> Iterator[str]:
    """Changes that make it fit, each tried with the solver."""
    for words, allowed in _freer(settings, recipe):
        if fits(devices, recipe, allowed):
            yield words
    more = _more(graph, devices, recipe, lambda others: fits(others, recipe, settings))
    if more:
        yield more
    if recipe.precision not in _SIXTEEN_BIT:
        half = "bf16" if any("bf16" in d.peak for d in devices.devices) else "fp16"
        if fits(devices, replace(recipe, precision=half), settings):
            yield f"with --precision {half}"
    smaller = (recipe.batch >> halved for halved in range(1, recipe.batch.bit_length()))
    batch = next((b for b in smaller if fits(devices, replace(recipe, batch=b), settings)), None)
    if batch is not None:
        yield f"with --batch {batch}"


def _freer(settings: SearchSettings, recipe: Recipe) -> Iterator[tuple[str, SearchSettings]]:
    """Descriptions of options that rule out ways to save memory, and the settings without them."""
    if recipe.training and not settings.recompute:
        yield "without --no-recompute", replace(settings, recompute=True)
    if settings.microbatches is not None:
        yield "without --microbatches", replace(settings, microbatches=None)
    fewer = settings.most_tensor < _DEFAULTS.most_tensor or settings.most_replicas is not None
    if settings.pipeline_only or fewer:
        allowed = replace(
            settings, pipeline_only=False, most_replicas=None, most_tensor=_DEFAULTS.most_tensor
        )
        yield "with replicas and shared products too", allowed
    if recipe.training and set(settings.shardings) < set(_DEFAULTS.shardings):
        yield (
            f"with --sharding {','.join(_DEFAULTS.shardings)}",
            replace(settings, shardings=_DEFAULTS.shardings),
        )
    if settings.schedule == "gpipe":
        yield "with --schedule 1f1b", replace(settings, schedule="1f1b")


def _more(graph: Graph, devices: Devices, recipe: Recipe, fits: Callable[[Devices], bool]) -> str:
    """The fewest further devices of the kind with the most memory that suffice; "" where none do."""
    largest = max(devices.devices, key=lambda device: device.memory)
    kind = largest.kind
    room = sum(usable_memory(device) for device in devices.devices)
    too_few, enough = 0, max(1, int((_least_bytes(graph, recipe) - room) // usable_memory(largest)))
    while enough <= _MOST_MORE and not fits(with_more(devices, kind, enough)):
        too_few, enough = enough, enough * 2
    if enough > _MOST_MORE:
        return ""
    while enough - too_few > max(1, enough // 16):
        middle = (too_few + enough) // 2
        fitting = fits(with_more(devices, kind, middle))
        too_few, enough = (too_few, middle) if fitting else (middle, enough)
    total = enough + sum(device.kind == kind for device in devices.devices)
    return f"with {enough} more {kind} ({total} in all)"
