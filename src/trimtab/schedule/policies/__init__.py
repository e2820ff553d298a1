"""Policies by name. To add one, write a module with a class, and a line here."""

from dataclasses import fields
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trimtab.core import BadInputError, NotFoundError, did_you_mean
from trimtab.schedule.allocation import SchedulingPolicy

POLICIES = {
    "trimtab": "trimtab:Trimtab",
    "fifo": "fifo:Fifo",
    "srtf": "srtf:Srtf",
    "priority": "priority:PriorityQueues",
    "edf": "edf:Edf",
    "las": "las:Las",
    "drf": "drf:Drf",
    "maxmin": "maxmin:MaxMin",
    "gavel": "gavel:Gavel",
    "sia": "sia:SiaPolicy",
}
"""Module here and class of each policy; imported when it is chosen."""


def policy(name: str) -> SchedulingPolicy:
    """The policy of this name, such as "fifo"; settings follow a colon: "gavel:objective=throughput"."""
    name, _, settings = name.partition(":")
    if name not in POLICIES:
        hint = did_you_mean(name, POLICIES) or f"; the policies are {', '.join(POLICIES)}"
        raise NotFoundError(f'there is no policy "{name}"{hint}')
    module, _, class_name = POLICIES[name].partition(":")
    chosen = getattr(import_module(f"{__name__}.{module}"), class_name)
    if not settings:
        return chosen()  # type: ignore[no-any-return]
    return chosen(_settings(name, type(chosen().settings), settings))  # type: ignore[no-any-return]


def _settings(name: str, kind: type[Any], text: str) -> Any:
    """Settings of a policy from "key=value,key=value"; numbers of a list are separated by slashes."""
    types = {field.name: field.type for field in fields(kind)}
    chosen: dict[str, Any] = {}
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        key = key.replace("-", "_")
        if not sign or key not in types:
            hint = did_you_mean(key, types) or f"; the settings are {', '.join(types)}"
            raise NotFoundError(f'policy {name} has no setting "{part.strip()}"{hint}; write key=value')
        listed = types[key] not in _EXPECTED
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(types[key])  # type: ignore[arg-type]
            chosen[key] = adapter.validate_python(value.split("/") if listed else value)
        except ValidationError:
            right = _EXPECTED.get(types[key], "numbers such as 10/20")  # type: ignore[arg-type]
            raise BadInputError(f'policy {name}: {key} should be {right}, not "{value}"') from None
    return kind(**chosen)


_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
