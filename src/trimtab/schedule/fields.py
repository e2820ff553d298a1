"""Names and values that somebody wrote down, read one by one; what is wrong is said with its path."""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab.core import (
    BadInputError,
    did_you_mean,
    one_line,
    parse_bytes,
    parse_duration,
    parse_money,
    quoted,
    refuse_unknown,
)

_NAME = re.compile(r"[\w.-]{1,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""How a variable of the environment may be called."""
_MOST = 1_000_000  # workers, accelerators, attempts


class Fields:
    """A set of names and values in a file, below `path` in it where that is given."""

    def __init__(self, where: str, path: str, told: Any, names: Sequence[str], example: str) -> None:
        place = f"{where}: {path}" if path else where
        if not isinstance(told, Mapping):
            found = one_line(quoted(told))
            raise BadInputError(f"{place} is {found}; it should be names and values, such as {example}")
        refuse_unknown(place, told, names)
        self._where, self._path, self._told = where, path, told

    def __contains__(self, name: str) -> bool:
        return self._told.get(name) is not None

    def value(self, name: str) -> Any:
        """As it was written; None where it was not."""
        return self._told.get(name)

    def at(self, name: str) -> str:
        """The place of a value, for messages."""
        return f"{self._where}: {self._path}{'.' if self._path else ''}{name}"

    def missing(self, name: str, right: str) -> BadInputError:
        """What to raise about a value that is not there."""
        return BadInputError(f"{self.at(name)} is missing; {right}")

    def refuse(self, name: str, right: str) -> BadInputError:
        """What to raise about a value that cannot be used."""
        return BadInputError(f"{self.at(name)} is {one_line(quoted(self.value(name))):.60}; {right}")

    def inner(self, name: str, names: Sequence[str], example: str) -> "Fields":
        """Names and values under a name; none where it is not there."""
        told = self.value(name)
        return Fields(self._where, name, {} if told is None else told, names, example)

    def name(self, name: str, default: str | None = None) -> str:
        """Letters, digits, dots, hyphens, underscores."""
        if name not in self and default is None:
            raise self.missing(name, "give one of letters, digits, dots and hyphens")
        value = self.value(name) if name in self else default
        if not isinstance(value, str) or not (value == default or _NAME.fullmatch(value)):
            raise self.refuse(name, "it should be a name of at most 63 letters, digits, dots and hyphens")
        return value

    def names(self, name: str, variables: bool = False) -> tuple[str, ...]:
        """A list of names, or one alone."""
        value = self.value(name)
        told = [value] if isinstance(value, str) else value if value is not None else []
        pattern = VARIABLE if variables else _NAME
        if not isinstance(told, list) or not all(isinstance(x, str) and pattern.fullmatch(x) for x in told):
            raise self.refuse(name, "it should be a list of names, such as [A, B]")
        return tuple(dict.fromkeys(told))

    def one_of(self, name: str, known: Sequence[str], default: str) -> str:
        """One of a few words."""
        value = self.value(name) if name in self else default
        if value not in known:
            hint = did_you_mean(str(value), known) if isinstance(value, str) else ""
            raise self.refuse(name, f"it should be one of {', '.join(known)}{hint}")
        return str(value)

    def count(self, name: str, default: int, least: int = 0) -> int:
        """A whole number."""
        value = self.value(name) if name in self else default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
            raise self.refuse(name, f"it should be a whole number from {least} to {_MOST:,}")
        return value

    def range(self, name: str) -> tuple[int, int]:
        """Two whole numbers of which the first is not above the second: 8, or 2..16."""
        value = self.value(name)
        found = re.fullmatch(r"(\d{1,9})\s*(?:\.\.\s*(\d{1,9}))?", str(value)) if not _flag(value) else None
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not 1 <= low <= high <= _MOST:
            raise self.refuse(name, "it should be a whole number such as 8, or a range such as 2..16")
        return low, high

    def number(self, name: str, default: float, above: float = 0.0, most: float = math.inf) -> float:
        """A number above one bound, and at most another."""
        return self._measured(name, default, _plain, "a number", above, most)

    def seconds(self, name: str, default: float, above: float = 0.0) -> float:
        """A duration such as 6h."""
        return self._measured(name, default, parse_duration, "a duration such as 90s, 15m or 6h", above)

    def bytes(self, name: str, default: float, above: float = 0.0) -> float:
        """An amount of memory such as 16GiB."""
        return self._measured(name, default, parse_bytes, "an amount such as 512MB or 16GiB", above)

    def dollars(self, name: str, default: float) -> float:
        """An amount of money such as $20."""
        return self._measured(name, default, parse_money, "an amount such as $20", 0.0)

    def words(self, name: str) -> tuple[str, ...]:
        """A command: a list of words, or a line that is split as a shell would."""
        value = self.value(name)
        try:
            told = shlex.split(value) if isinstance(value, str) else value
        except ValueError as error:
            raise self.refuse(name, f"its quotes do not close ({str(error).lower()})") from None
        if not isinstance(told, list) or not told or any(isinstance(x, list | dict | None) for x in told):
            raise self.refuse(name, "it should be a command such as python train.py, or a list of its words")
        words = tuple(x if isinstance(x, str) else str(x) for x in told)
        if not words[0] or any("\0" in word for word in words):
            raise self.refuse(name, "it should be a command such as python train.py, or a list of its words")
        return words

    def table(self, name: str, of: Callable[[str, Any], float | str]) -> dict[str, Any]:
        """Names with a value each."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self.refuse(name, "it should be names with a value each, such as {A: 1}")
        return {key: of(f"{self.at(name)}.{key}", each) for key, each in value.items()}

    def _measured(
        self,
        name: str,
        default: float,
        parse: Callable[[str], float],
        right: str,
        above: float,
        most: float = math.inf,
    ) -> float:
        if name not in self:
            return default
        value = self.value(name)
        try:
            amount = math.nan if _flag(value) else parse(str(value))
        except BadInputError:
            amount = math.nan
        if not (above < amount <= most and amount < math.inf):
            bound = f" above {above:g}" if most == math.inf else f" above {above:g} and at most {most:g}"
            raise self.refuse(name, f"it should be {right}{bound}")
        return amount


def require_name(name: str, whose: str) -> str:
    """The name, which must be one that a job file could hold."""
    if not _NAME.fullmatch(name):
        raise BadInputError(
            f'"{one_line(name):.60}" cannot be the name of {whose}; use letters, digits, dots and hyphens'
        )
    return name


def positive(where: str, value: Any) -> float:
    """A number above zero."""
    amount = math.nan if _flag(value) else _plain(str(value))
    if not 0 < amount < math.inf:
        raise BadInputError(f"{where} is {one_line(quoted(value))}; it should be a number above 0")
    return amount


def text(where: str, value: Any) -> str:
    """A word, or a number as a word."""
    if not isinstance(value, str | int | float) or "\0" in str(value):
        raise BadInputError(f"{where} is {one_line(quoted(value))}; it should be text, in quotes if need be")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _flag(value: Any) -> bool:
    """Whether it cannot be a quantity: Python takes true for 1."""
    return isinstance(value, bool) or not isinstance(value, int | float | str)
