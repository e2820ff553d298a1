"""Fitting the laws of traced steps and the factors of every device, and correcting them by similar steps.

Laws and factors are fitted together: a device's factors are held to zero (what the laws say of its data
sheet) as firmly as devices differ, so that a device with few rows, or none, stays near its prior. What the
laws leave is learned from steps of similar composition (a Gaussian process over the shares of the estimate),
and from rows of the same device, number format and kind of network, shrunken towards zero. Ranges are
conformal by architecture, and by device for a device that was not measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, traced_laws
from trimtab.core import BadInputError
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.step_time import StepTime
from trimtab.predict.cost.traced import (
    FACTORS,
    PRODUCTS,
    Circumstances,
    DeviceColumns,
    Laws,
    TracedDemand,
    TracedTimes,
    device_columns,
    shared_totals,
    traced_time,
    traced_total,
)
from trimtab.predict.gaussian_process import inducing_rows, inducing_weights, squared_distance
from trimtab.predict.interval import conformal_interval
from trimtab.predict.tables import Array, take_rows

Labels = NDArray[np.str_]

_ERROR = 0.12  # log error of a good row; larger ones count linearly
_ROWS_OF_A_CELL = 40.0  # rows of one device, source, mode and format that count in full
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e4
_DIFFERENCE = 0.01
_LARGEST_STEP = 0.7
_SETTLED = 1e-3
_SOURCE_SPREAD = 0.15


@dataclass(frozen=True, slots=True, eq=False)
class TracedRows:
    """Measured steps as columns: totals of their calls, device, circumstances, and seconds."""

    totals: Array
    parameters: Array
    tensors: Array
    batch: Array
    facts: DeviceColumns
    run: Circumstances
    seconds: Array
    device: Labels
    architecture: Labels
    source: Labels

    @property
    def mode(self) -> Labels:
        return np.where(self.run.training > 0, "train", "infer")


@dataclass(frozen=True, slots=True)
class FittedLaws:
    """Laws of all devices, and factors by device; a device that is missing has the prior, zero.

    `sources` are log factors of who measured: with which drivers, clocks and loops is not published.
    """

    laws: Laws
    factors: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, float]

    def columns(self, devices: Labels) -> dict[str, Array]:
        """Factors of each row's device."""
        names, index = np.unique(devices, return_inverse=True)
        return {
            factor: np.array([self.factors.get(str(name), {}).get(factor, 0.0) for name in names])[index]
            for factor in FACTORS
        }

    def times(self, rows: TracedRows) -> TracedTimes:
        times = _times(rows, self.laws, self.columns(rows.device))
        names, index = np.unique(rows.source, return_inverse=True)
        offset = np.array([self.sources.get(str(name), 0.0) for name in names])[index]
        return replace(times, step=times.step.scaled(np.exp(offset)))


def _times(rows: TracedRows, laws: Laws, factors: Mapping[str, Array]) -> TracedTimes:
    return traced_time(rows.totals, rows.parameters, rows.tensors, rows.facts, rows.run, laws, factors)


def fit_laws(rows: TracedRows, start: FittedLaws | None = None, rounds: int = 12) -> FittedLaws:
    """Robust least squares on log seconds by Levenberg and Marquardt's method."""
    from scipy.sparse import csr_matrix, hstack

    names = [f.name for f in fields(Laws)]
    center = np.log([f.metadata["start"] for f in fields(Laws)])
    spread = np.array([f.metadata["spread"] for f in fields(Laws)])
    devices, index = np.unique(rows.device, return_inverse=True)
    sources, source = np.unique(rows.source, return_inverse=True)
    known = start or FittedLaws(Laws(), {}, {})
    laws = np.log([getattr(known.laws, name) for name in names])
    factors = np.concatenate(
        [[known.factors.get(str(d), {}).get(factor, 0.0) for d in devices] for factor in FACTORS]
    )
    count, number = len(devices), len(names)
    last = number + len(FACTORS) * count
    prior = np.concatenate(
        [
            1.0 / spread,
            *(np.full(count, 1.0 / s) for s in FACTORS.values()),
            np.full(len(sources), 1.0 / _SOURCE_SPREAD),
        ]
    )
    weight = np.sqrt(_weights(rows)) / _ERROR
    target = np.log(rows.seconds)

    def estimate(x: Array) -> Array:
        constants = Laws(**dict(zip(names, np.exp(x[:number]).tolist(), strict=True)))
        columns = {
            factor: x[number + i * count : number + (i + 1) * count][index]
            for i, factor in enumerate(FACTORS)
        }
        return np.asarray(np.log(_times(rows, constants, columns).step.total) + x[last:][source])

    origin = np.concatenate([center, np.zeros(len(FACTORS) * count + len(sources))])

    def loss(logs: Array, x: Array) -> float:
        residual = weight * (logs - target)
        return float(np.sum(2 * (np.sqrt(1 + residual**2) - 1)) + np.sum((prior * (x - origin)) ** 2))

    x = np.concatenate([laws, factors, [known.sources.get(str(name), 0.0) for name in sources]])
    logs, damping = estimate(x), _FIRST_DAMPING
    value = loss(logs, x)
    every = np.arange(len(target))
    for _ in range(rounds):
        residual = weight * (logs - target)
        robust = weight / np.sqrt(np.sqrt(1 + residual**2))
        slopes = np.empty((len(target), number))
        for j in range(number):
            moved = x.copy()
            moved[j] += _DIFFERENCE
            slopes[:, j] = (estimate(moved) - logs) / _DIFFERENCE
        parts = [csr_matrix(slopes)]
        for i in range(len(FACTORS)):
            moved = x.copy()
            moved[number + i * count : number + (i + 1) * count] += _DIFFERENCE
            slope = (estimate(moved) - logs) / _DIFFERENCE
            parts.append(csr_matrix((slope, (every, index)), (len(target), count)))
        parts.append(csr_matrix((np.ones(len(target)), (every, source)), (len(target), len(sources))))
        matrix = hstack(parts).tocsr().multiply(robust[:, None]).tocsr()
        normal = (matrix.T @ matrix).toarray() + np.diag(prior**2)
        gradient = matrix.T @ (robust * (target - logs)) - prior**2 * (x - origin)
        while damping < _LAST_DAMPING:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            tried = x + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
            tried_logs = estimate(tried)
            tried_value = loss(tried_logs, tried)
            if tried_value < value:
                break
            damping *= 5.0
        else:
            break
        settled = value - tried_value < _SETTLED * value
        x, logs, value, damping = tried, tried_logs, tried_value, max(damping / 4.0, 1e-5)
        if settled:
            break
    constants = Laws(**dict(zip(names, np.exp(x[:number]).tolist(), strict=True)))
    by_device = x[number:last].reshape(len(FACTORS), count)
    return FittedLaws(
        constants,
        {
            str(name): dict(zip(FACTORS, by_device[:, i].tolist(), strict=True))
            for i, name in enumerate(devices)
        },
        {str(name): float(value) for name, value in zip(sources, x[last:], strict=True)},
    )


def _weights(rows: TracedRows) -> Array:
    """Weight of each row: a device with thousands of rows from one source does not outweigh all others."""
    cells = [
        "|".join(map(str, cell))
        for cell in zip(rows.device, rows.source, rows.mode, rows.run.half, strict=True)
    ]
    _, index, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.asarray(np.minimum(1.0, np.sqrt(_ROWS_OF_A_CELL / counts))[index])


# Corrections by similar steps.

_POINTS = 250
_VARIANCE = 0.03
_SHARED_NOISE = 0.004  # of one architecture
_OWN_NOISE = 0.01
_LARGEST_CORRECTION = 0.5
_CELL_PRIOR = 4.0  # architectures that count as much as a cell's own
_REACH = 0.55  # distance, in standard deviations per feature, over which steps are alike


def similarity_features(rows: TracedRows, times: TracedTimes) -> Array:
    """Features of each step: shares of the estimate by category, sizes, shapes and circumstances."""
    total = np.asarray(times.step.total)
    shares = [np.sqrt(times.by_category[name] / total) for name in sorted(times.by_category)]
    shapes = []
    for product in PRODUCTS:
        flop = traced_total(rows.totals, f"forward_{product}_flop")
        for other in ("results", "operands"):
            per = traced_total(rows.totals, f"forward_{product}_{other}")
            shapes.append(np.where(flop > 0, np.log2((flop + 1.0) / (per + 1.0)) / 10.0, 0.0))
    sizes = [
        np.log10(total),
        np.log10(rows.batch),
        np.log10(rows.parameters),
        np.log(times.host / times.device),
    ]
    run = rows.run
    flags = [run.half, run.cast, run.training, run.channels_last, run.version >= 2.0]
    return np.stack([np.asarray(c, dtype=float) for c in (*shares, *shapes, *sizes, *flags)], axis=1)


def network_kind(rows: TracedRows) -> Labels:
    """Kind of network by where its forward FLOP are.

    Convolutions, grouped convolutions, or matrix products.
    """
    flop = {p: traced_total(rows.totals, f"forward_{p}_flop") for p in PRODUCTS}
    whole = np.maximum(np.sum(list(flop.values()), axis=0), 1.0)
    calls = traced_total(rows.totals, "forward_grouped_calls") / np.maximum(
        traced_total(rows.totals, "forward_conv_calls") + traced_total(rows.totals, "forward_grouped_calls"),
        1.0,
    )
    products = (flop["matmul"] + flop["batched"]) / whole
    return np.where(products > 0.5, "transformer", np.where(calls > 0.1, "grouped", "convolution"))


def cells(rows: TracedRows) -> Labels:
    """Device, number format, mode and kind of network of each row."""
    return np.array(
        [
            f"{device}|{'half' if half else 'full'}|{mode}|{kind}"
            for device, half, mode, kind in zip(
                rows.device, rows.run.half > 0, rows.mode, network_kind(rows), strict=True
            )
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class SimilarSteps:
    """Log factors on the laws' estimate, by inducing points over features and by cell."""

    center: Array
    scale: Array
    points: Array
    weights: Array
    cells: Mapping[str, float]

    def factor(self, rows: TracedRows, times: TracedTimes) -> Array:
        """Log factor on each row's estimate; zero on devices without measurements, where it did not help."""
        smooth = self.smooth(similarity_features(rows, times))
        names, index = np.unique(cells(rows), return_inverse=True)
        own = np.array([self.cells.get(str(name), 0.0) for name in names])[index]
        measured = {name.split("|")[0] for name in self.cells}
        seen = np.array([name.split("|")[0] in measured for name in names])[index]
        bounded = np.clip(smooth + own, -_LARGEST_CORRECTION, _LARGEST_CORRECTION)
        return np.asarray(np.where(seen, bounded, 0.0))

    def smooth(self, features: Array) -> Array:
        places = (features - self.center) / self.scale
        return np.asarray(np.exp(-0.5 * squared_distance(places, self.points)) @ self.weights)


def learn_similar(rows: TracedRows, times: TracedTimes, seed: int = 0) -> SimilarSteps:
    """Corrections from the rows' errors."""
    features = similarity_features(rows, times)
    errors = np.log(rows.seconds / np.asarray(times.step.total))
    # What a device, format and kind of network have in common comes first: it says nothing about other
    # devices.
    labels = cells(rows)
    by_cell = _cell_offsets(labels, rows.architecture, errors)
    names, index = np.unique(labels, return_inverse=True)
    left = errors - np.array([by_cell[str(name)] for name in names])[index]
    bounded = np.clip(left, -0.6, 0.6)
    center, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-6, spread, 1.0) * _REACH * np.sqrt(features.shape[1])
    places = (features - center) / scale
    # Candidates for points: as many rows as a decomposition takes quickly, of all cells.
    weight = 1.0 / _weights(rows) ** -2
    random = np.random.default_rng(seed)
    drawn = random.choice(len(places), min(1500, len(places)), replace=False, p=weight / weight.sum())
    kernel = np.exp(-0.5 * squared_distance(places[drawn], places[drawn]))
    points = places[drawn][inducing_rows(kernel, _POINTS)]
    among = _VARIANCE * np.exp(-0.5 * squared_distance(points, points)) + 1e-6 * np.eye(len(points))
    across = _VARIANCE * np.exp(-0.5 * squared_distance(points, places))
    weights = _VARIANCE * inducing_weights(
        among, across, bounded, rows.architecture, _SHARED_NOISE, _OWN_NOISE
    )
    return SimilarSteps(center, scale, points, weights, by_cell)


def _cell_offsets(labels: Labels, architectures: Labels, errors: Array) -> dict[str, float]:
    """Median log error of each cell, shrunken by how few architectures it has."""
    offsets: dict[str, float] = {}
    for name in np.unique(labels):
        of_cell = labels == name
        number = len(np.unique(architectures[of_cell]))
        offsets[str(name)] = float(np.median(errors[of_cell])) * number / (number + _CELL_PRIOR)
    return offsets


# Ranges.

_COVERAGE = 0.9
_SPREAD_PRIOR = 8.0  # architectures that count as much as a device's own in its spread
_LEAST_SPREAD = 0.03


def device_spreads(errors: Array, rows: TracedRows) -> dict[str, float]:
    """Spread of the log errors of each device and mode, shrunken towards that of all ("device|mode")."""
    sizes = np.minimum(np.abs(errors), 1.0)
    spreads: dict[str, float] = {}
    for mode in ("train", "infer"):
        of_mode = rows.mode == mode
        if not of_mode.any():
            continue
        everywhere = _by_architecture(sizes[of_mode], rows.architecture[of_mode])
        spreads[mode] = max(_LEAST_SPREAD, everywhere)
        for device in np.unique(rows.device[of_mode]):
            here = of_mode & (rows.device == device)
            number = len(np.unique(rows.architecture[here]))
            own = _by_architecture(sizes[here], rows.architecture[here])
            spread = (number * own + _SPREAD_PRIOR * everywhere) / (number + _SPREAD_PRIOR)
            spreads[f"{device}|{mode}"] = max(_LEAST_SPREAD, spread)
    return spreads


def _by_architecture(sizes: Array, architectures: Labels) -> float:
    """Mean over architectures of their mean."""
    _, index = np.unique(architectures, return_inverse=True)
    return float((np.bincount(index, sizes) / np.bincount(index)).mean())


@dataclass(frozen=True, slots=True)
class TracedRanges:
    """Log truth over estimate in nine cases of ten.

    `seen` by mode, in units of `spreads` of a device and mode; `unseen` by mode, for a device without
    measurements in that mode.
    """

    spreads: Mapping[str, float]
    seen: Mapping[str, tuple[float, float]]
    unseen: Mapping[str, tuple[float, float]]

    def of(self, device: str, mode: str) -> tuple[float, float]:
        """(low, high) factors on an estimate for a device."""
        spread = self.spreads.get(f"{device}|{mode}")
        if spread is not None and mode in self.seen:
            low, high = (end * spread for end in self.seen[mode])
        else:
            low, high = self.unseen.get(mode, (-1.0, 1.0))
        return float(np.exp(min(low, 0.0))), float(np.exp(max(high, 0.0)))


def learn_ranges(rows: TracedRows, architectures_out: Array, devices_out: Array) -> TracedRanges:
    """Ranges from log truth over estimate of rows whose architecture, or device, was left out; else NaN."""
    kept = np.isfinite(architectures_out)
    known = take_rows(rows, kept)
    spreads = device_spreads(architectures_out[kept], known)
    seen: dict[str, tuple[float, float]] = {}
    unseen: dict[str, tuple[float, float]] = {}
    for mode in ("train", "infer"):
        of_mode = kept & (rows.mode == mode)
        if of_mode.any():
            scale = np.array([spreads[f"{device}|{mode}"] for device in rows.device[of_mode]])
            seen[mode] = conformal_interval(
                architectures_out[of_mode] / scale, _COVERAGE, rows.architecture[of_mode]
            )
        of_mode = np.isfinite(devices_out) & (rows.mode == mode)
        if of_mode.any():
            unseen[mode] = conformal_interval(devices_out[of_mode], _COVERAGE, rows.device[of_mode])
    return TracedRanges(spreads, seen, unseen)


@dataclass(frozen=True, slots=True)
class TracedModel:
    """Fitted laws with their corrections and ranges; a part that is None is left out."""

    fitted: FittedLaws
    similar: SimilarSteps | None = None
    ranges: TracedRanges | None = None

    def step(self, rows: TracedRows) -> StepTime:
        """Seconds of each step, by part."""
        times = self.fitted.times(rows)
        factor = np.exp(self.similar.factor(rows, times)) if self.similar else 1.0
        return times.step.scaled(factor)

    def seconds(self, rows: TracedRows) -> Array:
        return np.asarray(self.step(rows).total)


def learn_traced(rows: TracedRows, start: FittedLaws | None = None, rounds: int = 12) -> TracedModel:
    """Laws, factors and corrections from measured steps, without ranges."""
    fitted = fit_laws(rows, start, rounds)
    return TracedModel(fitted, learn_similar(rows, fitted.times(rows)))


def traced_rows(
    demand: TracedDemand,
    batch: Array,
    devices: Sequence[Accelerator],
    index: NDArray[np.intp],
    precision: str,
    training: bool = True,
    tensor: Array | float = 1.0,
) -> TracedRows:
    """Steps of one model as a current PyTorch runs them.

    `index` says on which of `devices`, `batch` how large, `tensor` how many devices share every product.
    """
    one, nothing = np.ones(len(index)), np.zeros(len(index))
    half = one * is_half(precision)
    run = Circumstances(
        half=half,
        cast=half,
        tf32=one * (precision == "tf32"),
        conv_tf32=one * (precision in ("tf32", "fp32")),
        training=one * training,
        channels_last=nothing,
        updates=one * training,
        copied=nothing,
        version=_CURRENT_VERSION * one,
    )
    names = np.array([device.name for device in devices])[index]
    return TracedRows(
        totals=shared_totals(demand.at(batch, training), tensor * one),
        parameters=demand.parameters * one / tensor,
        tensors=demand.tensors * one,
        batch=np.asarray(batch, dtype=float),
        facts=take_rows(device_columns(devices), index),
        run=run,
        seconds=one,
        device=names,
        architecture=np.full(len(index), ""),
        source=np.full(len(index), OWN_SOURCE),
    )


_CURRENT_VERSION = 2.1
OWN_SOURCE = "gpu-steps"
"""Steps that Trimtab measured itself."""


def traced_data(model: TracedModel) -> dict[str, Any]:
    """Plain data of a model, as the catalog keeps it; four digits are more than the fit gives."""

    def rounded(value: float) -> float:
        return float(f"{value:.4g}")

    data: dict[str, Any] = {
        "laws": {f.name: rounded(getattr(model.fitted.laws, f.name)) for f in fields(Laws)},
        "devices": {
            name: {factor: round(value, 4) for factor, value in factors.items()}
            for name, factors in sorted(model.fitted.factors.items())
        },
        "sources": {name: round(value, 4) for name, value in sorted(model.fitted.sources.items())},
    }
    if model.similar is not None:
        data["similar"] = {
            name: np.vectorize(rounded)(getattr(model.similar, name)).tolist()
            for name in ("center", "scale", "points", "weights")
        } | {"cells": {name: round(value, 4) for name, value in sorted(model.similar.cells.items())}}
    if model.ranges is not None:
        data["ranges"] = {
            "spreads": {name: round(value, 4) for name, value in sorted(model.ranges.spreads.items())},
            "seen": {mode: [rounded(v) for v in ends] for mode, ends in model.ranges.seen.items()},
            "unseen": {mode: [rounded(v) for v in ends] for mode, ends in model.ranges.unseen.items()},
        }
    return data


def parse_traced(data: Mapping[str, Any]) -> TracedModel:
    """A model from the catalog's plain data."""
    try:
        similar, ranges = data["similar"], data["ranges"]
        arrays = {
            name: np.array(similar[name], dtype=float) for name in ("center", "scale", "points", "weights")
        }
        if arrays["points"].shape != (len(arrays["weights"]), len(arrays["center"])):
            raise ValueError("the points of the correction do not match its weights")
        return TracedModel(
            FittedLaws(
                Laws(**data["laws"]),
                {name: {f: float(entry[f]) for f in FACTORS} for name, entry in data["devices"].items()},
                {name: float(value) for name, value in data["sources"].items()},
            ),
            SimilarSteps(**arrays, cells=dict(similar["cells"])),
            TracedRanges(
                dict(ranges["spreads"]),
                {mode: (float(low), float(high)) for mode, (low, high) in ranges["seen"].items()},
                {mode: (float(low), float(high)) for mode, (low, high) in ranges["unseen"].items()},
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the catalog's laws of traced steps are not this version's: {error}") from None


@cache
def shipped_traced() -> TracedModel | None:
    """The model that comes with the catalog; None if there is none."""
    data = traced_laws()
    return parse_traced(data) if data else None
