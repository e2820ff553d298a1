"""How values of settings are read, from YAML or from text; what is wrong with one is half a sentence."""

import re
from collections.abc import Callable
from typing import Any

from trimtab.core import (
    BadInputError,
    did_you_mean,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
    quoted,
    split_address,
)

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_STORE = re.compile(r"sqlite:///.+|postgres(ql)?(\+psycopg)?://.+")


def text(value: Any) -> str:
    """Words."""
    if not isinstance(value, str):
        raise BadInputError(f"should be text, not {quoted(value)}")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of words; in one text, with commas between them."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise BadInputError(f"should be a list of texts, not {quoted(value)}")
    return tuple(value)


def switch(value: Any) -> bool:
    """On or off."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise BadInputError(f"should be true or false, not {quoted(value)}")


def choice(*allowed: str) -> Callable[[Any], str]:
    """One of a few words."""

    def read(value: Any) -> str:
        if value in allowed:
            return str(value)
        near = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise BadInputError(f"should be {' or '.join(allowed)}, not {quoted(value)}{near}")

    return read


def duration(least: float) -> Callable[[Any], float]:
    """Seconds, from a number of them or text such as 90s or 2h."""

    def read(value: Any) -> float:
        seconds = _amount(value, parse_duration, "a duration such as 90s or 2h")
        if seconds < least:
            raise BadInputError(f"should be at least {format_duration(least)}, not {quoted(value)}")
        return seconds

    return read


def size(least: int) -> Callable[[Any], int]:
    """Bytes, from a number of them or text such as 1MiB."""

    def read(value: Any) -> int:
        count = _amount(value, parse_bytes, "a size such as 1MiB")
        if count < least:
            raise BadInputError(f"should be at least {format_bytes(least)}, not {quoted(value)}")
        return round(count)

    return read


def number(least: float) -> Callable[[Any], float]:
    """A number."""

    def read(value: Any) -> float:
        found = _amount(value, float, "a number")
        if not least <= found < float("inf"):
            raise BadInputError(f"should be a number of at least {least:g}, not {quoted(value)}")
        return found

    return read


def address(value: Any) -> str:
    """HOST:PORT."""
    told = text(value)
    try:
        split_address(told)
    except BadInputError as error:
        raise BadInputError(f"should be HOST:PORT: {error}") from None
    return told


def web_url(value: Any) -> str:
    """The URL of a site, without a slash at its end."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        raise BadInputError("should be a URL such as https://trimtab.example, without a user or a query")
    return value.rstrip("/")


def store_url(value: Any) -> str:
    """The URL of a database. It is never repeated in a message: it may hold a password."""
    if not isinstance(value, str) or not _STORE.fullmatch(value):
        raise BadInputError("should be sqlite:///path/to/file or postgresql://user@host/database")
    return value


def _amount(value: Any, parse: Callable[[str], float], what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadInputError(f"should be {what}, not {quoted(value)}")
    try:
        return parse(str(value))
    except (BadInputError, ValueError):
        raise BadInputError(f"should be {what}, not {quoted(value)}") from None
