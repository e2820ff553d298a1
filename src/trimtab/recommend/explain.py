"""Explains the rank of a recommended row in sentences, numbers and plain data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab.catalog import find_accelerator
from trimtab.core import (
    Contribution,
    Estimate,
    format_bandwidth,
    format_bytes,
    format_duration,
    format_energy,
    format_flop_rate,
    format_money,
    format_price,
    to_plain,
)
from trimtab.recommend.search import Recommendation, Row

BOUNDS = {
    "launch": "launch-bound",
    "compute": "compute-bound",
    "traffic": "memory-bound",
    "update": "memory-bound",
    "network": "network-bound",
    "input": "input-bound",
}
OUTCOMES = "outcomes"
STARTING = "starting the machines"
PART_NAMES = {
    "launch": "launching operators",
    "compute": "arithmetic",
    "traffic": "memory traffic",
    "update": "parameter update",
    "network": "waiting for other devices",
    "input": "waiting for data",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of each of a row's estimates: rule, model, or outcomes (of earlier runs)."""

    time: str
    cost: str
    memory: str


def evidence(row: Row) -> Evidence:
    """The evidence of a row; the model of time learns only from earlier runs of this workload."""
    time = OUTCOMES if row.time_by_model else "rule"
    return Evidence(time, time, "model" if row.memory_by_model else "rule")


def bound(row: Row) -> str:
    """Name of the step's bottleneck, such as "compute-bound"."""
    return BOUNDS[max(row.parts, key=lambda name: row.parts[name])]


def contributions(row: Row, startup: float) -> tuple[Contribution, ...]:
    """Seconds of the job by cause; their sum is the row's time."""
    running = [
        Contribution(PART_NAMES[name], seconds * row.steps) for name, seconds in row.parts.items() if seconds
    ]
    restarts = row.steps * row.step_seconds * (row.stretch - 1.0)
    extra = [Contribution("lost to spot restarts", restarts)] if restarts else []
    return (*running, *extra, Contribution(STARTING, startup))


def reason(row: Row, best: Row) -> str:
    """One sentence on the row's bottleneck and its time and cost compared with the best row."""
    largest = max(row.parts, key=lambda name: row.parts[name])
    seconds = row.parts[largest]
    sentence = (
        f"{bound(row)}: {PART_NAMES[largest]} takes {format_duration(seconds)},"
        f" {seconds / row.step_seconds:.0%} of a step of {format_duration(row.step_seconds)}"
    )
    if row.rank == best.rank:
        return sentence
    return (
        f"{sentence}; it takes {row.time.value / best.time.value:.2g}× the time and"
        f" {row.cost.value / best.cost.value:.2g}× the cost of row {best.rank}"
    )


def explain_row(result: Recommendation, row: Row) -> list[str]:
    """Lines that explain one row."""
    c, best = row.configuration, result.rows[0]
    lines = [
        f"Row {row.rank}: {c.key}",
        f"  {result.work.source}: {row.steps:,.0f} steps of {c.batch_size * c.replicas:,} samples",
        *_spread_words(row),
        f"  time {_span(row.time, format_duration)},"
        f" cost {_span(row.cost, format_money)}"
        f" at {format_price(c.price)} (prices of {c.offer.price_date})",
        f"  {reason(row, best)}",
        f"  one step of {format_duration(row.step_seconds)}:",
    ]
    for name, seconds in sorted(row.parts.items(), key=lambda item: -item[1]):
        if seconds > 0:
            share = seconds / row.step_seconds
            lines.append(f"    {PART_NAMES[name]:28} {format_duration(seconds):>9}  {share:5.1%}")
    lines.append(f"  {_hardware(row)}")
    if row.energy:
        watts = row.energy.value / row.time.value
        lines.append(
            f"  energy: {_span(row.energy, format_energy)}, {watts:,.0f} W on average without cooling"
        )
    lines.append(
        f"  memory: a step needs {format_bytes(row.memory)}, at most {format_bytes(row.memory_high)},"
        f" of {format_bytes(row.memory_limit)} per device"
        + ("; it may run out" if row.memory_high > row.memory_limit else "")
    )
    if row.stretch > 1:
        lines.append(f"  spot: restarts stretch the job by {row.stretch - 1:.1%} on average")
    lines.append(f"  price: {_price_words(row, best)}")
    if row.dearer:
        lines.append(f"  also: {row.dearer} dearer with the same accelerators in the same time")
    by = evidence(row)
    moved = ", corrected by outcomes of earlier runs" if by.time == OUTCOMES else ""
    lines.append(f"  evidence: time and cost by the {_rule_words(row)}{moved}; memory by the {by.memory}")
    return lines + [f"  {line}" for line in both_answers(row)]


def _spread_words(row: Row) -> list[str]:
    """How the model is spread over the devices; empty for plain data parallelism."""
    c = row.configuration
    if not c.parallel.name:
        return []
    words = {
        "none": "every replica keeps all of its state",
        "optimizer": "replicas share out the optimizer's state",
        "gradients": "replicas share out the optimizer's state and the gradients",
        "full": "replicas share out weights, gradients and optimizer state",
    }[c.parallel.sharding]
    if c.replicas == 1:
        words = "one replica"
    parts = c.parallel.tensor * c.parallel.pipeline
    held = f"a replica on {parts} devices" if parts > 1 else "a replica on each device"
    return [f"  {c.parallel.name}: {c.replicas} × {held}; {words}"]


def both_answers(row: Row) -> list[str]:
    """The estimates of rule and model, and the guard's reasons for its choices."""
    lines = []
    for name, side in (("rule", row.rule), ("model", row.model)):
        parts = []
        if side.time and side.cost:
            parts += [f"time {_span(side.time, format_duration)}", f"cost {_span(side.cost, format_money)}"]
        if side.memory:
            at_most = format_bytes(side.memory.high)
            parts.append(f"memory {format_bytes(side.memory.value)}, at most {at_most}")
        lines.append(f"{name}: {', '.join(parts) or 'no estimate'}")
    return [*lines, f"time: {row.time_choice}", f"memory: {row.memory_choice}"]


def _span(guess: Estimate, show: Callable[[float], str]) -> str:
    return f"{show(guess.value)} ({show(guess.low)} to {show(guess.high)})"


def _hardware(row: Row) -> str:
    offer = row.configuration.offer
    facts = find_accelerator(offer.accelerator) if offer.accelerator else None
    if facts is None:
        return f"hardware: {offer.vcpus:g} vCPUs, no accelerator"
    rate = max((facts.peak.get(f, 0.0) for f in ("fp32", "tf32", "bf16", "fp16")), default=0.0)
    return (
        f"hardware: {row.configuration.devices} × {facts.name}, up to {format_flop_rate(rate)} and"
        f" {format_bandwidth(facts.memory_bandwidth)} each; {facts.interconnect.name} inside,"
        f" {format_bandwidth(offer.network)} between nodes"
    )


def _price_words(row: Row, best: Row) -> str:
    per_sample = row.cost.value / (row.steps * row.configuration.batch_size * row.configuration.replicas)
    words = f"{format_money(per_sample * 1e6)} per million samples"
    if row.rank != best.rank:
        words += (
            f"; {row.configuration.price / best.configuration.price:.2g}× the price per hour of row 1"
            f" for {best.time.value / row.time.value:.2g}× its speed"
        )
    return words + ("; nothing is both faster and cheaper" if row.efficient else "")


def _rule_words(row: Row) -> str:
    facts = find_accelerator(row.configuration.offer.accelerator or "")
    if facts is None:
        return (
            "CPU rule corrected by the local run"
            if row.measured
            else "CPU rule, not corrected: the local run was not on a CPU"
        )
    return f"analytic rule (constants of {facts.name}: {facts.rests_on})"


def plain_recommendation(result: Recommendation, decision_id: str, top: int) -> dict[str, Any]:
    """The first `top` rows with bottlenecks and reasons, dropped candidates and notes, as plain data.

    `decision_id` is "" if the decision was not stored.
    """
    return {
        "decision": decision_id or None,
        "workload": result.profile.workload.name,
        "objective": result.request.objective,
        "samples": result.work.samples,
        "considered": result.considered,
        "rows": [
            {
                **to_plain(row),
                "bound": bound(row),
                "reason": reason(row, result.rows[0]),
                "spread": row.configuration.parallel.name,
                "evidence": to_plain(evidence(row)),
            }
            for row in result.rows[:top]
        ],
        "dropped": to_plain(result.dropped),
        "notes": list(result.notes),
    }
