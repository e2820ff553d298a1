"""Quantities and moments as people read them."""

from datetime import UTC, datetime

from trimtab.core import Answer, Decision, Estimate, Scalar, format_bytes, format_duration, format_money


def moment(seconds: float | None) -> str:
    """Seconds since the epoch as a date and time."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s since 1970"  # decisions and profiles bring times of their own, and any


def quantity(name: str, value: float, unit: str = "") -> str:
    """A measured or estimated value by its name or unit."""
    known = {"time": format_duration, "cost": format_money, "memory": format_bytes}
    by_unit = {"s": format_duration, "$": format_money, "B": format_bytes}
    show = known.get(name) or by_unit.get(unit)
    return show(value) if show else f"{value:.4g}{f' {unit}' if unit else ''}"


def estimate_words(name: str, guess: Estimate) -> str:
    """A guess with its range and how sure it is."""
    low, high = (quantity(name, value, guess.unit) for value in (guess.low, guess.high))
    return f"{quantity(name, guess.value, guess.unit)} ({low} to {high}, {guess.coverage:.0%})"


def action_words(answer: Answer | Decision) -> str:
    """What somebody would do, on one line."""
    a = answer.action
    if "instance" not in a:
        return ", ".join(f"{name} {_scalar(value)}" for name, value in a.items() if value not in (None, ""))
    nodes = f" ×{a['nodes']}" if a.get("nodes", 1) != 1 else ""
    return f"{a.get('cloud')} {a.get('region')} {a['instance']}{nodes}{' spot' if a.get('spot') else ''}"


def _scalar(value: Scalar) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
