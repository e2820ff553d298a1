"""Dataclasses as plain data (JSON types) and back, driven by their type hints; JSON text without NaN.

Pydantic's `TypeAdapter` is not used: it ignores unknown fields of a dataclass unless each declares a setting,
and takes "5" for 5 unless it is strict, when it refuses lists for tuples and text for enums and dates.
"""

import dataclasses
import re
import types
from collections.abc import Mapping
from datetime import date
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from trimtab.core.errors import BadInputError

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """Dicts, lists and scalars only; dates in ISO form."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (names := _names(kind)) is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [each if type(each) in _PLAIN else to_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    return value


def from_plain(kind: type[T], data: Any, where: str = "") -> T:
    """An instance of `kind` from plain data; a wrong or missing field is named by its path."""
    result: T = _build(kind, data, where or getattr(kind, "__name__", str(kind)))
    return result


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Field names of a dataclass; None for any other type."""
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@cache
def _fields(kind: type) -> tuple[tuple[str, Any, frozenset[Any], bool], ...]:
    """Fields of a dataclass: name, type, types of values to take unchanged, and whether it is required."""
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    fields = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        required = field.default is missing and field.default_factory is missing
        fields.append((field.name, hint, _PLAIN & set(members), required))
    return tuple(fields)


@cache
def _form(kind: Any) -> tuple[bool, Any, tuple[Any, ...]]:
    """Whether a type is a dataclass, its origin, and its arguments."""
    return dataclasses.is_dataclass(kind), get_origin(kind), get_args(kind)


def _build(kind: Any, data: Any, where: str) -> Any:
    is_dataclass, origin, members = _form(kind)
    if is_dataclass:
        return _build_dataclass(kind, data, where)
    if origin is None:
        return _build_scalar(kind, data, where)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in members:
            return None
        candidates = [member for member in members if member is not type(None)]
        errors = []
        for member in [each for each in candidates if type(data) is each] or candidates:
            try:
                return _build(member, data, where)
            except BadInputError as error:
                errors.append(error)
        raise errors[0]
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise BadInputError(f"{where} should be a list, not {data!r:.40}")
        members = members[:1] * len(data) if members[-1] is Ellipsis else members
        if len(members) != len(data):
            raise BadInputError(f"{where} should have {len(members)} parts, not {len(data)}")
        return tuple(_build(members[i], value, f"{where}[{i}]") for i, value in enumerate(data))
    if issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise BadInputError(f"{where} should be an object, not {data!r:.40}")
        return {key: _build(members[1], value, f"{where}.{key}") for key, value in data.items()}
    return _build_scalar(kind, data, where)


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise BadInputError(f"{where} should be an object, not {data!r:.40}")
    values, fields = {}, _fields(kind)
    for name, hint, unchanged, required in fields:
        if name in data:
            value = data[name]
            values[name] = value if type(value) in unchanged else _build(hint, value, f"{where}.{name}")
        elif required:
            raise BadInputError(f"{where}.{name} is missing")
    if len(values) < len(data):
        unknown = set(data) - {name for name, *_ in fields}
        raise BadInputError(f"{where} has no field {min(map(str, unknown))!r}")
    try:
        return kind(**values)
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from None


def _build_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is Any or (kind in (str, bool, int) and type(data) is kind):
        return data
    if kind is float and type(data) in (int, float):
        try:
            return float(data)
        except OverflowError:
            raise BadInputError(f"{where} is {data!r:.40}…, too large a number") from None
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise BadInputError(f"{where} is {data!r:.40}; it should be one of {allowed}") from None
    if kind is date and isinstance(data, str):
        try:
            return date.fromisoformat(data)
        except ValueError:
            pass
    raise BadInputError(f"{where} should be {getattr(kind, '__name__', kind)}, not {data!r:.40}")


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')


def within_grammar(text: str, nan: str | None = None) -> str:
    """JSON text with 1e999 for infinity, which every reader of doubles takes, and `nan` for NaN.

    Without a `nan`, NaN is refused.
    """

    def replacement(token: re.Match[str]) -> str:
        if token[0] == "NaN" and nan is None:
            raise BadInputError("a value is NaN, which cannot be stored; leave it out or give the number")
        return {"Infinity": "1e999", "NaN": nan or ""}.get(token[0], token[0])

    return _TOKEN.sub(replacement, text)
