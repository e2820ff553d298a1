"""Step times on devices of others: estimates against published measurements.

Networks are built without weights and traced; every comparable row of the tables is then estimated under
three protocols: its device, its architecture, or both are unknown to the fit. `--shipped` scores the
constants of the catalog as they are. Ranges of a fold come from the errors of the other folds. Rivals in the
same run and folds: the estimate for an H200 scaled by peak rates, and a roofline of three constants; the
errors of NeuSight, Habitat and Li et al. on NeuSight's rows are published ones.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import accelerator
from trimtab.core import BadInputError
from trimtab.predict import (
    OWN_SOURCE,
    TRACED_COLUMNS,
    FittedLaws,
    TracedModel,
    TracedRanges,
    TracedRows,
    device_columns,
    learn_ranges,
    learn_traced,
    network_kind,
    shipped_traced,
    traced_total,
)
from trimtab.predict.tables import take_rows
from trimtab_bench.devices.networks import (
    NetworkFacts,
    TracedNetwork,
    check_installed,
    parse_facts,
    trace_part,
)
from trimtab_bench.devices.published import UNLICENSED, PublishedStep, as_rows, matching, read_published
from trimtab_bench.devices.scaling import scaling_figures
from trimtab_bench.harness import BenchOptions, BenchResult, Kept, ResultTable, finish

Array = NDArray[np.float64]
Folds = NDArray[np.intp]
PROTOCOLS = ("device_unseen", "architecture_unseen", "both_unseen")
_DEVICE_FOLDS, _ARCHITECTURE_FOLDS = 8, 5
_ROUNDS = 4
_QUICK_NETWORKS = 40
_ROWS_OF_A_DEVICE = 20
# One chip sold with different memory: left out together.
_CHIPS = re.compile(r"V100|A100|H100|RTX-2080|MI2[15]0")


def run(options: BenchOptions) -> BenchResult:
    """Score estimates on published measurements."""
    if options.data is None:
        raise BadInputError("name the folder of published measurements: --data ../shared/data")
    steps, reasons = read_published(options.data)
    steps, facts, untraced = with_facts(steps, options)
    reasons.update(untraced)
    rows = as_rows(steps, facts)
    baselines: dict[str, Any] = {}
    if options.shipped:
        model = shipped_traced()
        if model is None or model.ranges is None:
            raise BadInputError("no laws of traced steps come with this version; run without --shipped")
        errors = {"shipped": np.log(rows.seconds / model.seconds(rows))}
        ends = {"shipped": _ends(model.ranges, rows)}
    else:
        errors, ends, baselines = cross_validated(rows, options)
    shown = errors.get("shipped", errors.get("device_unseen"))
    assert shown is not None
    figures: dict[str, Any] = {
        mode: {name: _scores(rows.mode == mode, errors[name], ends[name]) for name in errors}
        for mode in ("train", "infer")
    }
    by_device = {
        name: _scores(rows.device == name, shown, ends[next(iter(errors))]) for name in np.unique(rows.device)
    }
    figures["devices"] = {name: scores for name, scores in by_device.items() if scores}
    figures |= {"rows": len(rows.seconds), "excluded": dict(reasons.most_common())}
    figures |= scaling_figures(options.data)
    published = _published_errors(options.data)
    if published:
        baselines |= {"neusight rows": _on_neusight(rows, errors)}
    tables = _tables(rows, errors, ends, figures, baselines, reasons)
    return BenchResult("devices", figures, baselines, published, options.seed, tables)


def with_facts(
    steps: list[PublishedStep], options: BenchOptions
) -> tuple[list[PublishedStep], dict[TracedNetwork, NetworkFacts], Counter[str]]:
    """Steps whose network could be traced, the networks' facts, and how many others there are, by reason."""
    networks = list(dict.fromkeys(s.network for s in steps))
    left_out: Counter[str] = Counter()
    if options.quick:
        # Networks that were measured on many devices say most.
        devices = Counter(network for network, _ in {(s.network, s.device.name) for s in steps})
        networks = [network for network, _ in devices.most_common(_QUICK_NETWORKS)]
        chosen = [s for s in steps if s.network in set(networks)]
        left_out["not in the sample of a quick run"] = len(steps) - len(chosen)
        steps = chosen
    kept = known_facts()
    parts = {network: trace_part(network) for network in networks}
    if any(kept.load(part.file) is None for part in parts.values()):
        check_installed()
    with options.progress(len(parts), "tracing networks without weights") as announce:
        done = finish(list(parts.values()), kept, announce)
    facts = {network: parse_facts(done[part.key]) for network, part in parts.items()}
    usable = []
    for step in steps:
        reason = matching(step, facts[step.network])
        if reason is None:
            usable.append(step)
        else:
            left_out[reason] += 1
    return usable, {network: known for network, known in facts.items() if known is not None}, left_out


def known_facts() -> Kept:
    """Facts of networks that were traced with these versions of the libraries, in the user's folder."""
    return Kept.of("devices", ("facts", TRACED_COLUMNS, _versions()), ())


def _versions() -> tuple[str, ...]:
    found = []
    for name in ("torch", "timm", "torchvision", "transformers"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return tuple(found)


def _folds(labels: Sequence[str], count: int, seed: int) -> Folds:
    """A fold for every row such that equal labels share one."""
    names, index = np.unique(np.array(labels), return_inverse=True)
    return np.asarray((np.random.default_rng(seed).permutation(len(names)) % count)[index], dtype=np.intp)


def _chip(device: str) -> str:
    found = _CHIPS.match(device)
    return found[0] if found else device


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRows:
    """Rows to fit to and rows to score."""

    known: NDArray[np.bool_]
    held_out: NDArray[np.bool_]


def _protocol_folds(rows: TracedRows, seed: int) -> dict[str, list[HeldOutRows]]:
    devices = _folds([_chip(name) for name in rows.device], _DEVICE_FOLDS, seed)
    architectures = _folds(list(rows.architecture), _ARCHITECTURE_FOLDS, seed)
    licensed = fitted_to(rows)
    folds: dict[str, list[HeldOutRows]] = {name: [] for name in PROTOCOLS}
    for k in range(_DEVICE_FOLDS):
        folds["device_unseen"].append(HeldOutRows((devices != k) & licensed, devices == k))
        for a in range(_ARCHITECTURE_FOLDS):
            both = (devices != k) & (architectures != a) & licensed
            folds["both_unseen"].append(HeldOutRows(both, (devices == k) & (architectures == a)))
    for k in range(_ARCHITECTURE_FOLDS):
        folds["architecture_unseen"].append(HeldOutRows((architectures != k) & licensed, architectures == k))
    return {
        name: [fold for fold in found if fold.known.any() and fold.held_out.any()]
        for name, found in folds.items()
    }


def fitted_to(rows: TracedRows) -> NDArray[np.bool_]:
    """Rows of sources whose licence allows to fit constants to them."""
    return ~np.isin(rows.source, UNLICENSED)


def cross_validated(
    rows: TracedRows, options: BenchOptions
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    """By protocol: log truth over estimate, and (low, high) of the ranges; and the rivals' scores."""
    protocols = _protocol_folds(rows, options.seed)
    errors = {name: np.full(len(rows.seconds), np.nan) for name in PROTOCOLS}
    fold_of = {name: np.full(len(rows.seconds), -1) for name in PROTOCOLS}
    rivals = {name: np.full(len(rows.seconds), np.nan) for name in ("H200 scaled by peak", "roofline")}
    start: FittedLaws | None = None
    with options.progress(
        sum(map(len, protocols.values())), "leaving devices and architectures out"
    ) as announce:
        for name, folds in protocols.items():
            for number, fold in enumerate(folds):
                known, unseen = take_rows(rows, fold.known), take_rows(rows, fold.held_out)
                model = learn_traced(known, start, _ROUNDS if start else 3 * _ROUNDS)
                # Later fits begin at these constants, which no fold's rows move far.
                start = start or FittedLaws(model.fitted.laws, {}, {})
                errors[name][fold.held_out] = np.log(unseen.seconds / model.seconds(unseen))
                fold_of[name][fold.held_out] = number
                if name == "device_unseen":
                    rivals["H200 scaled by peak"][fold.held_out] = _scaled_by_peak(model, unseen)
                    rivals["roofline"][fold.held_out] = _roofline(known, unseen)
                announce(fold)
    ends = {name: _cross_conformal(rows, name, errors, fold_of[name]) for name in PROTOCOLS}
    baselines = {
        name: {
            mode: {"device_unseen": _scores(rows.mode == mode, error, None)} for mode in ("train", "infer")
        }
        for name, error in rivals.items()
    }
    return errors, ends, baselines


def _cross_conformal(rows: TracedRows, protocol: str, errors: Mapping[str, Array], folds: Folds) -> Array:
    """(low, high) in logs for every row, from the errors of rows in other folds."""
    ends = np.full((len(folds), 2), np.nan)
    for fold in np.unique(folds[folds >= 0]):
        here, others = folds == fold, folds != fold
        by_device = errors["both_unseen" if protocol == "both_unseen" else "device_unseen"]
        ranges = learn_ranges(
            rows,
            np.where(others & fitted_to(rows), errors["architecture_unseen"], np.nan),
            np.where(others, by_device, np.nan),
        )
        if protocol != "architecture_unseen":
            ranges = replace(ranges, spreads={})
        ends[here] = _ends(ranges, take_rows(rows, here))
    return ends


def _ends(ranges: TracedRanges, rows: TracedRows) -> Array:
    ends = [ranges.of(device, mode) for device, mode in zip(rows.device, rows.mode, strict=True)]
    return np.asarray(np.log(ends))


def _scores(chosen: NDArray[np.bool_], errors: Array, ends: Array | None) -> dict[str, float]:
    """Figures of the chosen rows; empty if none was scored. `errors` are log truth over estimate."""
    use = chosen & np.isfinite(errors)
    if not use.any():
        return {}
    ratio = np.exp(-errors[use])
    figures = {
        "median_ape": float(np.median(np.abs(ratio - 1))),
        "mean_ape": float(np.mean(np.abs(ratio - 1))),
        "bias": float(np.median(ratio) - 1),
        "rows": int(use.sum()),
    }
    if ends is not None:
        held = (errors[use] >= ends[use, 0]) & (errors[use] <= ends[use, 1])
        figures["coverage90"] = float(held.mean())
    return figures


def _scaled_by_peak(model: TracedModel, rows: TracedRows) -> Array:
    """Log truth over the estimate for an H200 times the ratio of the peak rates."""
    count = len(rows.seconds)
    h200 = take_rows(device_columns([accelerator("H200")]), np.zeros(count, dtype=np.intp))
    there = replace(rows, facts=h200, device=np.full(count, "H200"), source=np.full(count, OWN_SOURCE))
    ratio = _peak(there) / _peak(rows)
    return np.asarray(np.log(rows.seconds / (model.seconds(there) * ratio)))


def _peak(rows: TracedRows) -> Array:
    facts, run = rows.facts, rows.run
    half = np.where(facts.tensor_half > 0, facts.tensor_half, np.maximum(facts.vector_half, facts.vector))
    full = np.where((run.tf32 > 0) & (facts.tensor_tf32 > 0), facts.tensor_tf32, facts.vector)
    return np.asarray(np.where(run.half > 0, half, full))


def _roofline(known: TracedRows, unseen: TracedRows) -> Array:
    """Log truth over max(launch · calls, FLOP / (u · peak) + bytes / (v · bandwidth)), u and v by mode."""
    from scipy.optimize import minimize

    def parts(rows: TracedRows) -> tuple[Array, Array, Array]:
        def added(ending: str) -> Array:
            names = [name for name in TRACED_COLUMNS if name.endswith(ending)]
            return np.sum([traced_total(rows.totals, name) for name in names], axis=0)  # type: ignore[no-any-return]

        size = np.where(rows.run.half > 0, 0.5, 1.0)
        return added("_calls"), added("_flop") / _peak(rows), size * added("_bytes") / rows.facts.bandwidth

    def seconds(x: Array, split: tuple[Array, Array, Array]) -> Array:
        launch, share, streaming = np.exp(x)
        calls, compute, traffic = split
        return np.asarray(np.maximum(launch * calls, compute / share + traffic / streaming))

    errors = np.full(len(unseen.seconds), np.nan)
    for mode in ("train", "infer"):
        fitted, scored = (take_rows(rows, rows.mode == mode) for rows in (known, unseen))
        if not (len(fitted.seconds) and len(scored.seconds)):
            continue
        split, truth = parts(fitted), np.log(fitted.seconds)
        found = minimize(
            lambda x, split=split, truth=truth: float(np.abs(np.log(seconds(x, split)) - truth).mean()),
            np.log([5e-6, 0.4, 0.7]),
            method="Nelder-Mead",
        )
        errors[unseen.mode == mode] = np.log(scored.seconds / seconds(found.x, parts(scored)))
    return errors


def _published_errors(data: Path) -> dict[str, Any]:
    """Median and mean error that others published on NeuSight's rows, by method and mode."""
    path = next((p for p in (data / "gpu-public", data) if (p / "published-errors.csv").is_file()), None)
    if path is None:
        return {}
    errors: dict[tuple[str, str], list[float]] = {}
    with (path / "published-errors.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            errors.setdefault((row["method"], row["mode"]), []).append(float(row["abs_error_percent"]) / 100)
    return {
        f"{method}, {mode}": {
            "median_ape": float(np.median(e)),
            "mean_ape": float(np.mean(e)),
            "rows": len(e),
        }
        for (method, mode), e in sorted(errors.items())
    }


def _on_neusight(rows: TracedRows, errors: Mapping[str, Array]) -> dict[str, Any]:
    """Trimtab's own figures on NeuSight's rows."""
    return {
        mode: {
            name: _scores((rows.source == "neusight") & (rows.mode == mode), error, None)
            for name, error in errors.items()
        }
        for mode in ("train", "infer")
    }


def _cell(scores: Mapping[str, float]) -> str:
    if not scores:
        return "-"
    words = f"{scores['median_ape']:.1%} / {scores['mean_ape']:.1%}, {scores['bias']:+.0%}"
    return words + (f", {scores['coverage90']:.0%} in range" if "coverage90" in scores else "")


def _tables(
    rows: TracedRows,
    errors: Mapping[str, Array],
    ends: Mapping[str, Array],
    figures: Mapping[str, Any],
    baselines: Mapping[str, Any],
    reasons: Counter[str],
) -> tuple[ResultTable, ...]:
    title = "Median / mean absolute error, bias, share of rows in the 90 % range"
    lines = [
        (
            f"{mode}, {name.replace('_', ' ')}",
            _cell(figures[mode][name]),
            str(figures[mode][name].get("rows", 0)),
        )
        for mode in ("train", "infer")
        for name in errors
    ]
    lines += [
        (f"{mode}, {protocol.replace('_', ' ')}, {name}", _cell(scores), str(scores.get("rows", 0)))
        for name, by_mode in baselines.items()
        for mode, by_protocol in by_mode.items()
        for protocol, scores in by_protocol.items()
        if scores
    ]
    tables = [ResultTable(title, ("", "errors", "rows"), lines)]
    formats = np.where(rows.run.cast > 0, "autocast", np.where(rows.run.half > 0, "16 bits", "fp32, tf32"))
    groups = {
        "device": rows.device,
        "source": rows.source,
        "format": formats,
        "kind of network": network_kind(rows),
    }
    for head, labels in groups.items():
        cells = []
        for label in np.unique(labels):
            for mode in ("train", "infer"):
                chosen = (labels == label) & (rows.mode == mode)
                if chosen.sum() >= _ROWS_OF_A_DEVICE:
                    scores = (_cell(_scores(chosen, errors[name], ends[name])) for name in errors)
                    cells.append((f"{label}, {mode}", *scores, str(int(chosen.sum()))))
        names = (name.replace("_", " ") for name in errors)
        tables.append(ResultTable(f"By {head}", (head, *names, "rows"), cells))
    excluded = [(reason, str(count)) for reason, count in reasons.most_common()]
    tables.append(ResultTable("Rows that cannot be compared", ("reason", "rows"), excluded))
    return tuple(tables)
