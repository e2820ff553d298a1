"""Models of what users write: files and requests, checked field by field.

A file that users write is a `StrictModel`. `validate` builds it from plain data (what YAML or JSON holds) and
turns the first problem into one sentence: where, which field, what is wrong, and the nearest known name.
"""

import math
import re
import shlex
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError

from trimtab.core.errors import BadInputError
from trimtab.core.text import did_you_mean, one_line, quoted
from trimtab.core.units import parse_bytes, parse_duration, parse_money

Model = TypeVar("Model", bound=BaseModel)

_NAME = re.compile(r"[\w.-]{1,63}")
SCHEMA_NAME = (
    r"^[A-Za-z0-9_.\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\u02c1\u0400-\u0481\u048a-\u052f"
    r"\u4e00-\u9fff\uac00-\ud7a3-]{1,63}$"
)
"""Regular expression of usual names for JSON schemas, in whose \\w letters beyond ASCII are missing."""
_MOST = 1_000_000  # workers, accelerators, attempts


class StrictModel(BaseModel):
    """Immutable; forbids unknown fields, infinities and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _digits(most: int) -> str:
    """Regular expression of usual numbers above 0 for JSON schemas; parsers also take others, such as 1e3."""
    return rf"([1-9][0-9]{{0,{most - 1}}}(\.[0-9]{{1,3}})?|0\.[0-9]?[1-9])"


def quantity(parse: Callable[[str], float], right: str, pattern: str = _digits(6)) -> BeforeValidator:
    """Validator of a number with an optional unit; `right` says how to write one, `pattern` for schemas."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"it should be {right}")
        try:
            amount = parse(str(value))
        except (BadInputError, ValueError):
            raise ValueError(f"it should be {right}") from None
        if not math.isfinite(amount):
            raise ValueError(f"it should be {right}")
        return amount

    written = Annotated[str, Field(pattern=f"^({pattern})$")]
    return BeforeValidator(check, json_schema_input_type=Annotated[float, Field(gt=0)] | written)


def _name(value: Any) -> Any:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("it should be a name of at most 63 letters, digits, dots and hyphens")
    return value


def _command(value: Any) -> list[str]:
    right = "it should be a command such as python train.py, or a list of its words"
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"its quotes do not close ({str(error).lower()})") from None
    if not isinstance(words, list) or not words or any(isinstance(x, list | dict | None) for x in words):
        raise ValueError(right)
    written = [x if isinstance(x, str) else str(x) for x in words]
    if not written[0] or any("\0" in word for word in written):
        raise ValueError(right)
    return written


Whole = Annotated[int, Strict()]
"""An integer; true and "8" are refused."""
Number = Annotated[float, Strict()]
"""A finite number; true and "8" are refused."""
Count = Annotated[int, Strict(), Field(ge=1, le=_MOST)]
Seconds = Annotated[
    float,
    quantity(
        parse_duration,
        "a duration such as 90s, 15m or 6h",
        rf"{_digits(9)}( ?m?s)?|{_digits(7)} ?m|{_digits(4)} ?[hd]",
    ),
]
Bytes = Annotated[
    float,
    quantity(
        parse_bytes, "an amount such as 512MB or 16GiB", rf"{_digits(8)}( ?([KMG]i?)?B)?|{_digits(5)} ?Ti?B"
    ),
]
Dollars = Annotated[
    float, quantity(parse_money, "an amount such as $20", rf"\$?{_digits(9)}( USD)?"), Field(ge=0)
]
Name = Annotated[
    str, BeforeValidator(_name, json_schema_input_type=Annotated[str, Field(pattern=SCHEMA_NAME)])
]
_Line = Annotated[str, Field(pattern=r"""^[^\s'"\\\x00]([^'"\\\x00]|'[^'\x00]*'|"[^"\\\x00]*")*$""")]
_Word = Annotated[str, Field(pattern=r"^[^\x00]+$")]
_Words = Annotated[list[_Word | int | float], Field(min_length=1)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command, json_schema_input_type=_Line | _Words)]
"""A list of words, or one line that is split as a shell would."""


def validate(model: type[Model], data: Any, where: str) -> Model:
    """An instance of `model` from plain data; `where` (a path, "the request") begins the error."""
    if not isinstance(data, Mapping):
        names = ", ".join(_aliases(model))
        raise BadInputError(f"{where} is {one_line(quoted(data))}; it should have fields: {names}")
    try:
        return model.model_validate({str(k): v for k, v in data.items()})
    except ValidationError as error:
        raise BadInputError(f"{where}: {_problem(model, error)}") from None


def _problem(model: type[BaseModel], error: ValidationError) -> str:
    """The first problem; an unknown name first, because the field it stands for is missing as well."""
    found = error.errors(include_url=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    path, kind, value = first["loc"], first["type"], first["input"]
    if kind == "extra_forbidden":
        known = _known_at(model, path[:-1])
        name = one_line(str(path[-1]))
        names = f"; the fields are {', '.join(known)}" if known else ""
        inside = f" in {_written(path[:-1])}" if len(path) > 1 else ""
        return f'there is no field "{name:.40}"{inside}{did_you_mean(name, known)}{names}'
    if kind == "missing":
        return f"{_written(path)} is missing"
    problem = str(first.get("ctx", {}).get("error") or "") or _plain(first["msg"], kind, value)
    if kind == "model_type":
        problem = f"it should have fields: {', '.join(_known_at(model, path))}"
    if not path:
        return problem
    if path[-1] == "[key]":  # a name in a table of the user's own names
        return f"{_written(path[:-2])} has {one_line(quoted(value)):.60}; {problem}"
    return f"{_written(path)} is {one_line(quoted(value)):.60}; {problem}"


_PLAIN = {
    "bool_type": "it should be true or false",
    "int_type": "it should be a whole number",
    "dict_type": "it should be names with a value each, such as {A: 1}",
}


def _plain(message: str, kind: str, value: Any) -> str:
    """Pydantic's message as we write them; one of a few words with the nearest to what was written."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    text = message.replace("Input should be", "it should be").removeprefix("Value error, ")
    hint = did_you_mean(value, re.findall(r"'([^']*)'", message)) if isinstance(value, str) else ""
    return f"{text[:1].lower()}{text[1:]}{hint if kind in ('enum', 'literal_error') else ''}"


def _written(path: tuple[int | str, ...]) -> str:
    """`("uplinks", 1, "peer")` as `uplinks[1].peer`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{one_line(part):.60}"
    return text


def _known_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the model that `path` leads to; none if it is not one model."""
    kind: Any = model
    for part in path:
        if _is_model(kind):
            found = [f for name, f in kind.model_fields.items() if part in (name, f.alias)]
            kind = found[0].annotation if found else None
        elif get_origin(kind) is not None and get_args(kind):
            kind = get_args(kind)[-1] if get_args(kind)[-1] is not Ellipsis else get_args(kind)[0]
        kind = _model_of(kind)
    return _aliases(kind) if _is_model(kind) else []


def _model_of(kind: Any) -> Any:
    """`Model | None` and `Annotated[Model, …]` as `Model`."""
    if get_origin(kind) is Annotated:
        return _model_of(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        models = [each for each in get_args(kind) if each is not type(None)]
        return _model_of(models[0]) if len(models) == 1 else kind
    return kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _aliases(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
