"""A model that does not fit, in one sentence: by how much, and what would make it fit."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from math import ceil

import numpy as np

from trimtab.core import TrimtabError, format_bytes, parse_bandwidth
from trimtab.partition.devices import NETWORK, NETWORK_LATENCY, Devices, islands, with_more
from trimtab.partition.explain import device_names
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Layout, Recipe, Solution
from trimtab.partition.problem import bytes_per_weight, usable_memory
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.search import SearchSettings

_PATIENCE = 20.0
"""Seconds for finding out what would help."""
_MOST_NAMED = 3
_MOST_MORE = 512
_FREE = SearchSettings()
"""What is looked among where no option rules anything out."""
_SIXTEEN_BIT = ("bf16", "fp16")

Tell = Callable[[str, int, int], None]
Ask = Callable[[Devices, Recipe, SearchSettings, Tell], Solution]
"""The solver for one graph; it tells how far it is, and may be stopped then."""


class _OutOfPatienceError(Exception):
    """Raised in the middle of a search that takes too long."""


class _Trial:
    """Asks whether it would fit, as long as patience lasts."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._give_up = ask, time.monotonic() + _PATIENCE

    def fits(self, devices: Devices, recipe: Recipe, settings: SearchSettings) -> bool:
        """Whether a quick search finds a plan that fits."""
        quick = replace(settings, finalists=1, effort=QUICK)
        try:
            self._tell("", 0, 0)
            return self._ask(devices, recipe, quick, self._tell).forecast.fits
        except (TrimtabError, _OutOfPatienceError):
            return False

    def _tell(self, doing: str, done: int, of: int) -> None:
        if time.monotonic() > self._give_up:
            raise _OutOfPatienceError


def why_not(found: Solution, settings: SearchSettings, ask: Ask) -> str:
    """Sentence on a plan that does not fit: disconnected, or too large and by how much."""
    trial, parts = _Trial(ask), islands(found.devices)
    if len(parts) > 1:
        apart = " and ".join(device_names(found.devices, part) for part in parts[:3])
        joined = _joined(found.devices)
        if trial.fits(joined, found.recipe, settings):
            return (
                f"{found.graph.name} does not fit on any of the parts that no link joins, {apart}; give"
                " --network, or links in the devices' file"
            )
        found = replace(found, devices=joined)
    ways = list(islice(_ways(found, settings, trial), _MOST_NAMED))
    hint = f"it would fit {', or '.join(ways)}" if ways else _at_least(found)
    return f"{found.graph.name} does not fit: {_lacking(found)}; {hint}"


def _joined(devices: Devices) -> Devices:
    """Devices with the usual network where there is no link."""
    missing = devices.bandwidth <= 0
    bandwidth = np.where(missing, parse_bandwidth(NETWORK), devices.bandwidth)
    return Devices(devices.devices, bandwidth, np.where(missing, NETWORK_LATENCY, devices.latency))


def _at_least(found: Solution) -> str:
    """Where no change that was tried is enough: how many of the largest device its weights alone fill."""
    largest = max(found.devices.devices, key=lambda device: device.memory)
    count = ceil(_least_bytes(found.graph, found.recipe) / usable_memory(largest))
    what = "weights, gradients and optimizer state" if found.recipe.training else "weights"
    return f"its {what} alone fill {count:,} {largest.kind}"


def _least_bytes(graph: Graph, recipe: Recipe) -> float:
    """Bytes of one copy of the weights with their gradients and optimizer state."""
    return graph.total_parameters * sum(bytes_per_weight(recipe, Layout()))


def _lacking(found: Solution) -> str:
    forecast, devices = found.forecast, found.devices
    worst = max(forecast.uses, key=lambda use: use.memory - usable_memory(devices[use.device]))
    room = usable_memory(devices[worst.device])
    return (
        f"even the best split found needs {format_bytes(worst.memory)} on {devices[worst.device].name},"
        f" which is {format_bytes(worst.memory - room)} more than the {format_bytes(room)} it can use"
    )


def _ways(found: Solution, settings: SearchSettings, trial: _Trial) -> Iterator[str]:
    """Changes that make it fit, each tried with the solver."""
    graph, devices, recipe = found.graph, found.devices, found.recipe
    for words, allowed in _freer(settings, recipe):
        if trial.fits(devices, recipe, allowed):
            yield words
    more = _more(graph, devices, recipe, lambda others: trial.fits(others, recipe, settings))
    if more:
        yield more
    if recipe.precision not in _SIXTEEN_BIT:
        half = "bf16" if any("bf16" in d.peak for d in devices.devices) else "fp16"
        if trial.fits(devices, replace(recipe, precision=half), settings):
            yield f"with --precision {half}"
    smaller = (recipe.batch >> halved for halved in range(1, recipe.batch.bit_length()))
    batch = next((b for b in smaller if trial.fits(devices, replace(recipe, batch=b), settings)), None)
    if batch is not None:
        yield f"with --batch {batch}"


def _freer(settings: SearchSettings, recipe: Recipe) -> Iterator[tuple[str, SearchSettings]]:
    """Options that rule out ways to save memory, in words, and the settings without them."""
    if recipe.training and not settings.recompute:
        yield "without --no-recompute", replace(settings, recompute=True)
    if settings.microbatches is not None:
        yield "without --microbatches", replace(settings, microbatches=None)
    fewer = settings.most_tensor < _FREE.most_tensor or settings.most_replicas is not None
    if settings.pipeline_only or fewer:
        whole = replace(settings, pipeline_only=False, most_replicas=None, most_tensor=_FREE.most_tensor)
        yield "with replicas and shared products too", whole
    if recipe.training and set(settings.shardings) < set(_FREE.shardings):
        yield f"with --sharding {','.join(_FREE.shardings)}", replace(settings, shardings=_FREE.shardings)
    if settings.schedule == "gpipe":
        yield "with --schedule 1f1b", replace(settings, schedule="1f1b")


def _more(graph: Graph, devices: Devices, recipe: Recipe, fits: Callable[[Devices], bool]) -> str:
    """The fewest more devices of the kind with the most memory that would do, in words; "" where none do."""
    kind = max(devices.devices, key=lambda device: device.memory).kind
    have = sum(device.kind == kind for device in devices.devices)
    each = usable_memory(next(device for device in devices.devices if device.kind == kind))
    room = sum(usable_memory(device) for device in devices.devices)
    too_few, count = 0, max(1, int((_least_bytes(graph, recipe) - room) // each))
    while count <= _MOST_MORE:
        if fits(with_more(devices, kind, count)):
            enough = _fewest(too_few, count, lambda number: fits(with_more(devices, kind, number)))
            return f"with {enough} more {kind} ({have + enough} in all)"
        too_few, count = count, count * 2
    return ""


def _fewest(too_few: int, enough: int, fits: Callable[[int], bool]) -> int:
    """The least number that fits, between one that does not and one that does."""
    while enough - too_few > max(1, enough // 16):
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if fits(middle) else (middle, enough)
    return enough
