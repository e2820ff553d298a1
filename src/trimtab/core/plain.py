"""Dataclasses as plain data (what JSON can hold) and back, driven by their types; JSON within its grammar."""

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
    names = _names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if kind is tuple:
        return [each if type(each) in _PLAIN else to_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    return value


def from_plain(kind: type[T], data: Any, where: str = "") -> T:
    """An instance of `kind` from plain data; a wrong or missing field is named by its path."""
    result: T = _build(kind, data, where or getattr(kind, "__name__", str(kind)))
    return result


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None of what is none."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else None
    return None if fields is None else tuple(field.name for field in fields)


@cache
def _parts(kind: type) -> tuple[tuple[str, Any, frozenset[Any], bool], ...]:
    """Fields of a dataclass: name, type, types of values that need no look, and whether there must be one."""
    hints = get_type_hints(kind)
    return tuple(
        (
            f.name,
            hints[f.name],
            _PLAIN & {hints[f.name], *_members(hints[f.name])},
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(kind)
    )


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()


def _build(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data, where)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _build_union(get_args(kind), data, where)
    if origin is tuple:
        return _build_tuple(get_args(kind), data, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise BadInputError(f"{where} should be an object, not {data!r:.40}")
        return {k: _build(get_args(kind)[1], v, f"{where}.{k}") for k, v in data.items()}
    return _build_scalar(kind, data, where)


def _build_tuple(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list | tuple):
        raise BadInputError(f"{where} should be a list, not {data!r:.40}")
    each = kinds[:1] * len(data) if kinds[-1] is Ellipsis else kinds
    if len(each) != len(data):
        raise BadInputError(f"{where} should have {len(each)} parts, not {len(data)}")
    return tuple(_build(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(each, data, strict=True)))


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise BadInputError(f"{where} should be an object, not {data!r:.40}")
    values = {}
    parts = _parts(kind)
    for name, hint, as_it_is, required in parts:
        if name in data:
            value = data[name]
            values[name] = value if type(value) in as_it_is else _build(hint, value, f"{where}.{name}")
        elif required:
            raise BadInputError(f"{where}.{name} is missing")
    if len(values) < len(data):
        unknown = set(data) - {name for name, *_ in parts}
        raise BadInputError(f"{where} has no field {min(map(str, unknown))!r}")
    try:
        return kind(**values)
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from None


def _build_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    candidates = [k for k in kinds if k is not type(None)]
    exact = [k for k in candidates if isinstance(k, type) and type(data) is k]
    errors = []
    for kind in exact or candidates:
        try:
            return _build(kind, data, where)
        except BadInputError as error:
            errors.append(error)
    raise errors[0]


def _build_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise BadInputError(f"{where} is {data!r:.40}…, too large a number") from None
    if kind is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if kind in (str, bool) and isinstance(data, kind):
        return data
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

    def written(token: re.Match[str]) -> str:
        if token[0] == "Infinity":
            return "1e999"
        if token[0] != "NaN":
            return token[0]
        if nan is None:
            raise BadInputError("a value is NaN, which cannot be stored; leave it out or give the number")
        return nan

    return _TOKEN.sub(written, text)
