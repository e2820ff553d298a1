"""Text for and from users: hints at known names, values quoted in one line, network addresses."""

import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from trimtab.core.errors import BadInputError

_LONGEST = 40  # characters of a value that are quoted


def refuse_unknown(where: str, fields: Mapping[Any, Any], names: Sequence[str]) -> None:
    """Refuse a field that is not one of `names`."""
    unknown = next((one_line(name) for name in fields if name not in names), None)
    if unknown is not None:
        raise BadInputError(
            f'{where}: there is no "{unknown:.40}" here{did_you_mean(unknown, names)}; '
            f"the names are {', '.join(names)}"
        )


def did_you_mean(text: str, known: Collection[str]) -> str:
    """The nearest names as a part of a sentence, or nothing where none is near."""
    from difflib import get_close_matches

    lower = {name.lower(): name for name in known}
    near = [lower[name] for name in get_close_matches(text.lower(), lower, n=2)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def one_line(value: Any) -> str:
    """A value as one printable line."""
    text = value if isinstance(value, str) else quoted(value)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def quoted(value: Any) -> str:
    """A value as Python writes it, cut short: YAML aliases can stand for billions of items."""
    if isinstance(value, Collection):
        return reprlib.repr(value)[:_LONGEST]
    try:
        written = str(value)
        return written if len(written) <= _LONGEST else f"{written[:_LONGEST]}…"
    except ValueError:  # Python does not write out the longest integers
        return "a number of thousands of digits"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; a host with colons stands in brackets."""
    host, colon, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not re.fullmatch(r"[\w.:-]+", plain) or not port.isdecimal() or int(port) > 65535:
        raise BadInputError(f'"{address:.80}" is not an address such as 127.0.0.1:7433')
    if ":" in plain and plain == host:
        raise BadInputError(
            f'"{address:.80}" is not an address; put a host with colons in brackets, [::1]:7433'
        )
    return plain, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host. Names are not resolved: only localhost counts."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
