"""How `trimtab up` is set: one dataclass, whose fields name the file's keys, variables, flags and help."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from trimtab.serve import values

_URL_PASSWORD = re.compile(r"(://[^:@]*):.*@")
_QUERY_PASSWORD = re.compile(r"(password=)[^&]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them: its name in a file, its variable, its flag, how its value is read and what it is for."""

    name: str
    flag: str
    read: Callable[[Any], Any]
    metavar: str
    help: str
    default: Any

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TRIMTAB_{self.name.upper()}"

    @property
    def is_switch(self) -> bool:
        """Whether it is either on or off."""
        return isinstance(self.default, bool)


def _setting(default: Any, read: Callable[[Any], Any], metavar: str, help: str, flag: str = "") -> Any:
    return field(default=default, metadata={"read": read, "metavar": metavar, "help": help, "flag": flag})


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in seconds, sizes in bytes; what is empty is not set."""

    store: str = _setting(
        "", values.store_url, "URL", "Where everything is kept; else trimtab.sqlite in Trimtab's home."
    )
    engine: str = _setting(
        "local://", values.text, "URL", "Where jobs run: local://, ray://…, slurm://…, kubernetes://…"
    )
    policy: str = _setting(
        "trimtab", values.text, "NAME", "Who runs next; settings follow a colon, as in las:KEY=VALUE."
    )
    round: float = _setting(10.0, values.duration(0.1), "DURATION", "Between decisions when nothing happens.")
    prices: tuple[str, ...] = _setting(
        (), values.texts, "KIND=PRICE", "What accelerators cost: a100=$3.20/h.", flag="--price"
    )
    listen: str = _setting(
        "127.0.0.1:7430", values.address, "HOST:PORT", "Where the API and the dashboard are served."
    )
    public_url: str = _setting(
        "", values.web_url, "URL", "How others reach it, if that is not where it listens: https://…"
    )
    tls_certificate: str = _setting(
        "", values.text, "FILE", "Certificate (PEM, with its chain) to serve with; needs the key."
    )
    tls_key: str = _setting("", values.text, "FILE", "The certificate's private key (PEM).")
    insecure: bool = _setting(
        False, values.switch, "", "Listen beyond this machine without TLS, for who has it in front."
    )
    tokens: str = _setting(
        "auto",
        values.choice("auto", "always"),
        "auto|always",
        "Whether callers need a token: auto lets this machine in without one until the first is made.",
    )
    rate_limit: float = _setting(
        200.0, values.number(0.0), "NUMBER", "Requests per second and token, on average; 0 for any number."
    )
    body_limit: int = _setting(2**20, values.size(1024), "SIZE", "The largest body of a request.")
    dashboard: bool = _setting(True, values.switch, "", "Serve the dashboard.")
    metrics: bool = _setting(True, values.switch, "", "Serve /metrics for Prometheus beside the API.")
    pools: str = _setting("", values.text, "FILE", "Pools whose controller is to run as well (YAML).")
    agents_listen: str = _setting(
        "127.0.0.1:7433", values.address, "HOST:PORT", "With pools: where nodes' agents find it."
    )
    agents_join: str = _setting(
        "", values.address, "HOST:PORT", "With pools: where nodes join; else the port after agents_listen."
    )
    agents_metrics: str = _setting(
        "", values.address, "HOST:PORT", "With pools: serve the containers' /metrics there."
    )
    log_level: str = _setting(
        "info",
        values.choice("debug", "info", "warning", "error"),
        "debug|info|warning|error",
        "The least that is logged.",
    )
    log_format: str = _setting(
        "text", values.choice("text", "json"), "text|json", "Lines for people, or objects for programs."
    )


_READ: tuple[Setting, ...] = tuple(
    Setting(
        each.name,
        each.metadata["flag"] or f"--{each.name.replace('_', '-')}",
        each.metadata["read"],
        each.metadata["metavar"],
        each.metadata["help"],
        each.default,
    )
    for each in fields(Settings)
)


def settings_list() -> tuple[Setting, ...]:
    """All there are, in the order of the file."""
    return _READ


def setting_of(name: str) -> Setting:
    """The one of that name in a file; `KeyError` where there is none."""
    return {each.name: each for each in _READ}[name]


def masked(text: str) -> str:
    """A URL without its passwords; other text as it is."""
    return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


def plain_value(settings: Settings, name: str) -> Any:
    """A value as JSON can hold it and everybody may see it."""
    value = getattr(settings, name)
    if isinstance(value, tuple):
        return [masked(each) for each in value]
    return masked(value) if isinstance(value, str) else value
