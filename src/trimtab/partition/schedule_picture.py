"""A step as a picture: a line per stage, forward and backward of every micro-batch, and the gaps between."""

from collections.abc import Sequence

from trimtab.core import format_duration
from trimtab.partition import svg
from trimtab.partition.cost.timeline import Slot, StageTimes, timeline
from trimtab.partition.plan import Forecast, Plan

_LEFT, _WIDTH, _LINE, _GAP = 190, 900, 22, 5
_FORWARD = ("#4269d0", "#6f8fe0", "#97bbf5")
_BACKWARD = ("#efb118", "#f4c654", "#f8db94")
_ONCE = "#9498a0"
MOST_TITLED = 1500
"""Pieces of work that can be pointed at one by one; more are drawn in one stroke per line."""
MOST_DRAWN = 30_000


def played(plan: Plan, forecast: Forecast, training: bool) -> tuple[Slot, ...]:
    """The step as it would go."""
    times = StageTimes(
        forecast.stage_forward,
        forecast.stage_backward,
        forecast.transfers,
        [stage.ranks[0][0] for stage in plan.stages],
    )
    return timeline(times, plan.microbatches, plan.schedule, training)


def schedule_picture(plan: Plan, forecast: Forecast, labels: Sequence[str], training: bool) -> str:
    """The whole picture; `labels` says for each stage who runs it."""
    slots = played(plan, forecast, training)
    end = max(forecast.seconds, max(slot.end for slot in slots))
    shown = slots[:MOST_DRAWN]
    lines = _lines(plan)
    parts = [_background(line, label) for line, label in _line_labels(plan, lines, labels)]
    scale = _WIDTH / end
    if len(shown) <= MOST_TITLED:
        parts += [_slot(slot, lines[slot.stage], scale) for slot in shown]
    else:
        parts += _strokes(shown, lines, scale)
    worked = max(slot.end for slot in slots)
    height = (max(lines) + 1) * (_LINE + _GAP)
    if end > worked * 1.0001:
        once = "what a step does once: adding up gradients, updating weights, starting"
        title = f"{format_duration(end - worked)}: {once}"
        parts.append(svg.box(_LEFT + worked * scale, 8, (end - worked) * scale, height, _ONCE, title))
    parts += _axis(end, height + 8)
    parts += _legend(height + 42, training, len(slots) - len(shown))
    return svg.drawing(_LEFT + _WIDTH + 40, height + 60, "The schedule of one step", parts)


def _lines(plan: Plan) -> list[int]:
    """The line of every stage: stages of one device share one."""
    lines: dict[tuple[int, ...], int] = {}
    return [lines.setdefault(stage.ranks[0], len(lines)) for stage in plan.stages]


def _line_labels(plan: Plan, lines: Sequence[int], labels: Sequence[str]) -> list[tuple[int, str]]:
    label: dict[int, str] = {}
    for stage, line in enumerate(lines):
        label[line] = f"{stage + 1}: {labels[stage]}" if line not in label else f"{label[line]}, {stage + 1}"
    return list(label.items())


def _top(line: int) -> float:
    return 8 + line * (_LINE + _GAP)


def _background(line: int, label: str) -> str:
    return svg.box(_LEFT, _top(line), _WIDTH, _LINE, "#f0f1f3", f"{label}: idle where grey") + svg.text(
        _LEFT - 8, _top(line) + 15, svg.shortened(f"stage {label}", 30), anchor="end"
    )


def _slot(slot: Slot, line: int, scale: float) -> str:
    color = (_FORWARD if slot.phase == "forward" else _BACKWARD)[slot.microbatch % 3]
    x, width = _LEFT + slot.start * scale, (slot.end - slot.start) * scale
    title = (
        f"stage {slot.stage + 1}, {slot.phase} of micro-batch {slot.microbatch + 1}:"
        f" {format_duration(slot.end - slot.start)}, from {format_duration(slot.start)}"
    )
    drawn = svg.box(x, _top(line), width, _LINE, color, title, f'class="{slot.phase}"')
    number = str(slot.microbatch + 1)
    if width > 7 * len(number) + 4:
        drawn += svg.text(x + width / 2, _top(line) + 15, number, "#000", "middle", 10)
    return drawn


def _strokes(slots: Sequence[Slot], lines: Sequence[int], scale: float) -> list[str]:
    paths: dict[tuple[int, str, str], list[str]] = {}
    for slot in slots:
        color = (_FORWARD if slot.phase == "forward" else _BACKWARD)[slot.microbatch % 3]
        line = lines[slot.stage]
        x, width = _LEFT + slot.start * scale, (slot.end - slot.start) * scale
        paths.setdefault((line, slot.phase, color), []).append(
            f"M{x:.2f} {_top(line):g}h{width:.2f}v{_LINE}h-{width:.2f}z"
        )
    return [f'<path class="{p}" fill="{c}" d="{"".join(d)}"/>' for (_, p, c), d in paths.items()]


def _axis(end: float, top: float) -> list[str]:
    ticks = [end * part / 4 for part in range(5)]
    return [
        svg.curve(f"M{_LEFT} {top}h{_WIDTH}", svg.SOFT),
        *(
            svg.text(_LEFT + _WIDTH * t / end, top + 15, format_duration(t), svg.SOFT, "middle")
            for t in ticks
        ),
    ]


def _legend(top: float, training: bool, left_out: int) -> list[str]:
    named = [("forward", _FORWARD[0]), *([("backward", _BACKWARD[0])] if training else []), ("once", _ONCE)]
    parts = []
    for place, (name, color) in enumerate(named):
        parts.append(svg.box(_LEFT + place * 90, top - 9, 11, 11, color))
        parts.append(svg.text(_LEFT + place * 90 + 16, top, name))
    if left_out:
        parts.append(svg.text(_LEFT + 300, top, f"{left_out:,} later pieces of work are not drawn", svg.SOFT))
    return parts
