"""Explanation of a recommendation: why a row is where it is, in words, numbers and plain data."""

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
    format_flop_rate,
    format_money,
    format_price,
    to_plain,
)
from trimtab.recommend.search import Recommendation, Row, Side

BOUNDS = {
    "launch": ("launch-bound", "the host launches operators slower than the device runs them"),
    "compute": ("compute-bound", "arithmetic takes the most time"),
    "traffic": ("memory-bound", "reading and writing device memory takes the most time"),
    "update": ("memory-bound", "updating the parameters takes the most time"),
    "network": ("network-bound", "exchanging gradients takes the most time"),
    "input": ("input-bound", "waiting for data takes the most time"),
}
OUTCOMES = "outcomes"
STARTING = "starting the machines"
PART_NAMES = {
    "launch": "launching operators",
    "compute": "arithmetic",
    "traffic": "memory traffic",
    "update": "parameter update",
    "network": "gradients over the network",
    "input": "waiting for data",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Source of a row's numbers, in a word each: rule, model, or outcomes of earlier runs."""

    time: str
    cost: str
    memory: str


def evidence(row: Row) -> Evidence:
    """Evidence by the guard's choice; a model of time learns only from earlier runs of this workload."""
    time = OUTCOMES if row.time_by_model else "rule"
    return Evidence(time, time, "model" if row.memory_by_model else "rule")


def bound(row: Row) -> str:
    """Name of the step's bottleneck, such as "compute-bound"."""
    return BOUNDS[max(row.parts, key=lambda name: row.parts[name])][0]


def contributions(row: Row, startup: float) -> tuple[Contribution, ...]:
    """Seconds of the whole job by cause; they add up to the row's time."""
    running = [
        Contribution(PART_NAMES[name], seconds * row.steps) for name, seconds in row.parts.items() if seconds
    ]
    restarts = row.steps * row.step_seconds * (row.stretch - 1.0)
    extra = [Contribution("lost to spot restarts", restarts)] if restarts else []
    return (*running, *extra, Contribution(STARTING, startup))


def reason(row: Row, best: Row) -> str:
    """One sentence: what limits the row and how it compares with the first."""
    largest = max(row.parts, key=lambda name: row.parts[name])
    share = row.parts[largest] / row.step_seconds
    sentence = (
        f"{bound(row)}: {PART_NAMES[largest]} is {share:.0%} of a step of {format_duration(row.step_seconds)}"
    )
    if row.rank == best.rank:
        return sentence
    return (
        f"{sentence}; {row.time.value / best.time.value:.2g}× the time and"
        f" {row.cost.value / best.cost.value:.2g}× the cost of row 1"
    )


def explain_row(result: Recommendation, row: Row) -> list[str]:
    """A paragraph of lines about one row."""
    c, best = row.configuration, result.rows[0]
    total = format_duration(row.step_seconds)
    lines = [
        f"Row {row.rank}: {c.key}",
        f"  {result.work.source}: {row.steps:,.0f} steps of {c.batch_size * c.devices:,} samples",
        f"  time {_span(row.time, format_duration)},"
        f" cost {_span(row.cost, format_money)}"
        f" at {format_price(c.price)} (prices of {c.offer.price_date})",
        f"  {reason(row, best)}",
        f"  one step of {total}:",
    ]
    for name, seconds in sorted(row.parts.items(), key=lambda item: -item[1]):
        if seconds > 0:
            share = seconds / row.step_seconds
            lines.append(f"    {PART_NAMES[name]:28} {format_duration(seconds):>9}  {share:5.1%}")
    lines.append(f"  {_hardware(row)}")
    lines.append(
        f"  memory: a step needs {format_bytes(row.memory)}, at most {format_bytes(row.memory_high)},"
        f" of {format_bytes(row.memory_limit)} per device"
        + ("; it may run out" if row.memory_high > row.memory_limit else "")
    )
    if row.stretch > 1:
        lines.append(f"  spot: restarts stretch the job by {row.stretch - 1:.1%} on average")
    lines.append(f"  price: {_price_words(row, best)}")
    lines.append(f"  evidence: {_evidence_words(row)}")
    return lines + [f"  {line}" for line in both_answers(row)]


def both_answers(row: Row) -> list[str]:
    """Answers of rule and model, and which of them counts for what reason."""
    return [
        f"rule: {_side_words(row.rule)}",
        f"model: {_side_words(row.model)}",
        f"time: {row.time_choice}",
        f"memory: {row.memory_choice}",
    ]


def _side_words(side: Side) -> str:
    parts = []
    if side.time and side.cost:
        parts += [f"time {_span(side.time, format_duration)}", f"cost {_span(side.cost, format_money)}"]
    if side.memory:
        needs = side.memory
        parts.append(f"memory {format_bytes(needs.value)}, at most {format_bytes(needs.high)}")
    return ", ".join(parts) or "has no answer"


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
    per_sample = row.cost.value / (row.steps * row.configuration.batch_size * row.configuration.devices)
    words = f"{format_money(per_sample * 1e6)} per million samples"
    if row.rank != best.rank:
        words += (
            f"; {row.configuration.price / best.configuration.price:.2g}× the price per hour of row 1"
            f" for {best.time.value / row.time.value:.2g}× its speed"
        )
    return words + ("; nothing is both faster and cheaper" if row.efficient else "")


def _evidence_words(row: Row) -> str:
    by = evidence(row)
    moved = ", moved by outcomes of earlier runs" if by.time == OUTCOMES else ""
    return f"time and cost by the {_rule_words(row)}{moved}; memory by the {by.memory}"


def _rule_words(row: Row) -> str:
    if row.configuration.offer.accelerator is None:
        return (
            "CPU rule corrected by the local run"
            if row.measured
            else "CPU rule, not corrected: the local run was not on a CPU"
        )
    if row.measured:
        return "analytic rule with constants measured on this accelerator"
    return "analytic rule with constants carried over from a measured accelerator by its peak rates"


def plain_recommendation(result: Recommendation, decision_id: str, top: int) -> dict[str, Any]:
    """The first `top` rows with what limits each and why it is where it is, and what was left out.

    What is not kept has "" for its decision's id.
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
                "evidence": to_plain(evidence(row)),
            }
            for row in result.rows[:top]
        ],
        "dropped": to_plain(result.dropped),
        "notes": list(result.notes),
    }
