"""What people write down for us: names that must be known, and values quoted in one printable line."""

import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trimtab.core.errors import BadInputError

_LONGEST = 40  # characters of a value that are quoted


def refuse_unknown(where: str, told: Mapping[Any, Any], names: Sequence[str]) -> None:
    """What is misspelt must not be passed over: the answer would be another and nobody would know why."""
    unknown = next((one_line(name) for name in told if name not in names), None)
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
    """What was written as one printable line, so that a sentence about it stays one."""
    text = value if isinstance(value, str) else quoted(value)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def quoted(value: Any) -> str:
    """A value as Python writes it, cut short: a few lines of YAML can stand for billions of items."""
    if isinstance(value, Collection):
        return reprlib.repr(value)[:_LONGEST]
    try:
        written = str(value)
        return written if len(written) <= _LONGEST else f"{written[:_LONGEST]}…"
    except ValueError:  # Python does not write out the longest integers
        return "a number of thousands of digits"
