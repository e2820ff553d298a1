"""Policies by name. One more is one module with a class, and one line here."""

from dataclasses import fields
from importlib import import_module
from typing import Any

from trimtab.core import BadInputError, NotFoundError, did_you_mean
from trimtab.schedule.allocation import SchedulingPolicy

POLICIES: dict[str, tuple[str, str, str]] = {
    "trimtab": ("trimtab", "Trimtab", "the least waiting for everybody, with deadlines, tenants and dollars"),
    "fifo": ("fifo", "Fifo", "first come, first served; others fill gaps without delaying the first in line"),
    "srtf": ("srtf", "Srtf", "shortest expected remaining time first"),
    "priority": ("priority", "PriorityQueues", "queues by priority class; who waits long moves up"),
    "edf": ("edf", "Edf", "earliest deadline first; hard deadlines that cannot be met are refused"),
    "las": ("las", "Las", "least attained service in queues, as in Tiresias"),
    "drf": ("drf", "Drf", "dominant resource fairness among tenants"),
    "maxmin": ("maxmin", "MaxMin", "equal shares of time for jobs or tenants, whatever the accelerator"),
    "gavel": ("gavel", "Gavel", "shares of time on each kind of accelerator by what jobs gain there"),
    "sia": ("sia", "SiaPolicy", "elastic jobs on mixed accelerators by an integer program, as in Sia"),
}
"""Name: (module here, class, summary)."""


def policy(name: str) -> SchedulingPolicy:
    """The policy of this name, such as "fifo"; settings follow a colon: "gavel:objective=throughput"."""
    name, _, settings = name.partition(":")
    if name not in POLICIES:
        known = did_you_mean(name, POLICIES) or f"; there are {', '.join(POLICIES)}"
        raise NotFoundError(f'no policy is called "{name}"{known}')
    module, kind, _ = POLICIES[name]
    made = getattr(import_module(f"{__name__}.{module}"), kind)
    if not settings:
        return made()  # type: ignore[no-any-return]
    return made(_settings(name, getattr(made(), "settings", None), settings))  # type: ignore[no-any-return]


def _settings(name: str, usual: Any, text: str) -> Any:
    """Settings of a policy from "key=value,key=value"."""
    if usual is None:
        raise BadInputError(f"policy {name} has no settings, but {text} follows its name")
    known = {each.name: each.type for each in fields(usual)}
    chosen: dict[str, Any] = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or key not in known:
            hint = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise NotFoundError(f'policy {name} has no setting "{part.strip()}"{hint}, written key=value')
        chosen[key] = _value(name, key, known[key], value.strip())
    return type(usual)(**chosen)


def _value(name: str, key: str, kind: Any, text: str) -> Any:
    """One setting from text, by the type its field has."""
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        if kind in (int, float):
            return kind(text)
        if kind is str:
            return text
        if kind is not bool:
            return tuple(float(part) for part in text.split("/"))
    except ValueError:
        pass
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(
        kind, "numbers such as 10/20"
    )
    raise BadInputError(f'policy {name}: {key} is {wanted}, not "{text}"')
