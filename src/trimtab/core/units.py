"""Units of text for people; inside, all is SI: seconds, bytes, dollars, dollars per second, FLOP, FLOP/s.

`parse_…` reads text with a unit, `format_…` writes it. A bare number has the unit of the docstring.
"""

import math
import re

from trimtab.core.errors import BadInputError

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?"

HOUR = 3600.0
KWH = 3.6e6
"""Joules of a kilowatt-hour."""
MIB = 2**20
GIB = 2**30

_SECONDS = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0}
_SECONDS |= {"h": HOUR, "hr": HOUR, "d": 24 * HOUR, "w": 168 * HOUR}
_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_MOST_MEGABYTES = 10**6  # of one function; no platform sells more


def _number(mantissa: str, exponent: str | None) -> float:
    return float(f"{mantissa}e{exponent or 0}")


def _finite(value: float, text: str) -> float:
    if math.isinf(value):
        raise BadInputError(f'"{text}" is too large a number')
    return value


def parse_duration(text: str) -> float:
    """Seconds from "4h", "1h30m", "90 s", "250ms"; a bare number is seconds."""
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(_NUMBER, compact):
        return _finite(float(compact), text)
    parts = re.findall(_NUMBER + r"([a-zµ]+)", compact)
    if not re.fullmatch(rf"(?:{_NUMBER}[a-zµ]+)+", compact) or any(
        unit not in _SECONDS for *_, unit in parts
    ):
        raise BadInputError(f'"{text}" is not a duration; write it like 90s, 15m, 4h or 1h30m')
    return _finite(sum(_number(*number) * _SECONDS[unit] for *number, unit in parts), text)


def format_duration(seconds: float) -> str:
    """Two leading units: "250 ms", "42 s", "1h30m", "3d4h"."""
    if not math.isfinite(seconds):
        return "∞"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds == 0:
        return "0 s"
    shown, unit = _in_unit(seconds, (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)), 1000)
    if unit != "s":
        return f"{shown:.3g} {unit}"
    seconds = max(1.0, seconds)
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest:02d}s" if rest else f"{minutes}m"
    whole_minutes = round(seconds / 60)
    if whole_minutes < 48 * 60:
        hours, minutes = divmod(whole_minutes, 60)
        return f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def parse_bytes(text: str) -> float:
    """Bytes from "16GiB", "512 MB", "1.5T"; a bare number is bytes, a bare prefix is decimal."""
    return _scaled(text, r"([a-z]*?)b?", "an amount of memory; write it like 512MB or 16GiB")


def parse_memory_size(text: str) -> int:
    """Megabytes of 2^20 bytes, as platforms of functions sell them: "512MB", "1GB" (1024), "1GiB"."""
    parse_bytes(text)  # says what is wrong with the text as it was typed
    binary = re.sub(r"(?<=[kmgtpe])b?$", "ib", text.strip().lower())
    try:
        megabytes = parse_bytes(binary) / MIB
    except BadInputError:
        megabytes = math.inf  # a prefix beyond those of memory
    if not 1 <= megabytes < _MOST_MEGABYTES:
        bare = re.fullmatch(_NUMBER, text.strip()) is not None
        hint = f"; did you mean {text.strip()}MB?" if bare and megabytes > 0 else ", such as 512MB"
        raise BadInputError(f'"{text}" is not a memory size for a function{hint}')
    return round(megabytes)


def format_bytes(count: float) -> str:
    """Binary prefixes: "16 GiB", "1.5 MiB"."""
    if not math.isfinite(count):
        return "∞"
    if count < 0:
        return "-" + format_bytes(-count)
    units = (("B", 1.0), *((f"{prefix[0].upper()}iB", scale) for prefix, scale in _BINARY.items()))
    shown, unit = _in_unit(count, units, 1024)
    return f"{shown:.0f} {unit}" if shown >= 1000 or unit == "B" else f"{shown:.3g} {unit}"


def parse_money(text: str) -> float:
    """Dollars from "$12.10", "12.10", "$1,234.50" or "40 USD"."""
    compact = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.strip().lower())
    match = re.fullmatch(r"\$?\s*" + _NUMBER + r"\s*(?:usd|\$)?", compact)
    if match is None:
        raise BadInputError(f'"{text}" is not an amount of money; write it like 40 or $12.10')
    return _finite(_number(match[1], match[2]), text)


def format_money(dollars: float) -> str:
    """ "$12.10"; four decimals below ten cents, three digits below a tenth of one, none above $10,000."""
    if not math.isfinite(dollars):
        return "∞"
    if dollars < 0:
        return "-" + format_money(-dollars)
    if 0 < dollars < 0.001:
        return f"${dollars:.{2 - math.floor(math.log10(dollars))}f}" if dollars > 1e-12 else "$0.00"
    if 0 < dollars < 0.1:
        return f"${dollars:.4f}"
    return f"${dollars:,.2f}" if dollars < 9999.995 else f"${dollars:,.0f}"


def format_energy(joules: float) -> str:
    """ "1.24 kWh", three digits; "86.1 Wh" below a tenth of a kilowatt-hour, "1.38 MWh" above a thousand."""
    if not math.isfinite(joules):
        return "∞"
    kwh = joules / KWH
    number, unit = (kwh * 1e3, "Wh") if kwh < 0.1 else (kwh, "kWh") if kwh < 1e3 else (kwh / 1e3, "MWh")
    digits = max(0, 2 - math.floor(math.log10(number))) if number > 1e-9 else 0
    return f"{number:,.{min(digits, 3)}f} {unit}"


def parse_price(text: str) -> float:
    """Dollars per second from "$3.20/h", "3.20", "$0.001/s"; a bare number is dollars per hour."""
    amount, slash, per = text.strip().lower().partition("/")
    try:
        return parse_money(amount) / {**_SECONDS, "hour": HOUR, "second": 1.0}[per.strip() if slash else "h"]
    except (BadInputError, KeyError):
        raise BadInputError(f'"{text}" is not a price; write it like $3.20/h') from None


def format_price(dollars_per_second: float) -> str:
    """ "$3.20/h"."""
    return f"{format_money(dollars_per_second * HOUR)}/h"


def parse_rate(text: str) -> float:
    """Times per second from "0.05/h", "1/30d", "2 per day"; a bare number is per hour."""
    count, _, per = text.strip().lower().replace(" per ", "/").partition("/")
    period = {"": "h", "hour": "h", "day": "d", "week": "w", "second": "s"}.get(per.strip(), per.strip())
    try:
        seconds = parse_duration(period if period[0].isdigit() else f"1{period}")
    except BadInputError:
        seconds = 0.0
    if re.fullmatch(_NUMBER, count.strip()) is None or seconds == 0:
        raise BadInputError(f'"{text}" is not a rate; write it like 0.05/h or 1/30d')
    return _finite(float(count), text) / seconds


def parse_flop_rate(text: str) -> float:
    """FLOP per second from "312 TFLOP/s", "312TFLOPS", "19.5e12"."""
    return _scaled(text, r"([a-z]?)(?:flop/s|flops|flop)?", "a rate of arithmetic; write it like 312 TFLOP/s")


def format_flop_rate(per_second: float) -> str:
    """ "312 TFLOP/s"."""
    return f"{_decimal(per_second)}FLOP/s"


def format_flop(count: float) -> str:
    """ "24.3 GFLOP"."""
    return f"{_decimal(count)}FLOP"


def parse_bandwidth(text: str) -> float:
    """Bytes per second from "900 GB/s", "25 Gbit/s", "25Gbit", "100Gbps"; a bare number is that already."""
    right = "a bandwidth; write it like 900GB/s or 25Gbit/s"
    amount = _scaled(text, r"([a-z]*?)(?:bit/s|bit|bps|b/s)?", right)
    # "Gbps" is bits and "GBps" is bytes: the only place where the case of a unit matters.
    bits = text.strip().lower().endswith(("bit/s", "bit", "bps")) and not text.strip().endswith("Bps")
    return amount / 8 if bits else amount


def format_bandwidth(bytes_per_second: float) -> str:
    """ "900 GB/s": decimal prefixes, as vendors print them."""
    return f"{_decimal(bytes_per_second)}B/s"


def _scaled(text: str, unit: str, right: str) -> float:
    """A number with a prefix such as M or Mi; `unit` is a pattern whose group is the prefix."""
    match = re.fullmatch(_NUMBER + r"\s*" + unit, text.strip().lower())
    scale = (_BINARY.get(match[3]) or _DECIMAL.get(match[3])) if match else None
    if match is None or scale is None:
        raise BadInputError(f'"{text}" is not {right}')
    return _finite(_number(match[1], match[2]) * scale, text)


def _decimal(value: float) -> str:
    if not math.isfinite(value):
        return "∞ "
    sign = "-" if value < 0 else ""
    units = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18))
    shown, letter = _in_unit(abs(value), units, 1000)
    return f"{sign}{shown:.0f} {letter}" if shown >= 1000 else f"{sign}{shown:.3g} {letter}"


def _in_unit(amount: float, units: tuple[tuple[str, float], ...], next_at: float) -> tuple[float, str]:
    """The amount, rounded as it is printed, in the smallest unit where it is below `next_at`.

    Rounded before it is compared: what rounds up to a thousand of one unit is one of the next.
    """
    shown = least = 0.0
    for name, scale in units:
        count = amount / scale
        shown = max(least, float(f"{count:.3g}") if count < 999.5 else float(round(count)))
        if shown < next_at:
            return shown, name
        least = 1.0
    return shown, units[-1][0]
