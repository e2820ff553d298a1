"""Settings of `trimtab up`. A field of `Settings` is the file's key, a variable, a flag and a line of help.

A flag overrides a variable, a variable the file, and the file the default.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated

from trimtab.core import (
    BadInputError,
    did_you_mean,
    format_bytes,
    format_duration,
    home,
    is_loopback,
    one_line,
    parse_bytes,
    parse_duration,
    parse_price,
    quoted,
    split_address,
)
from trimtab.kernel import read_yaml

FILE_VARIABLE = "TRIMTAB_CONFIG"
SYSTEM_FILE = Path("/etc/trimtab/trimtab.yaml")
_NAME = "trimtab.yaml"
_PREFIX = "TRIMTAB_"
_NOT_SETTINGS = (
    *("TRIMTAB_HOME", FILE_VARIABLE, "TRIMTAB_SERVER", "TRIMTAB_TOKEN"),
    "TRIMTAB_LISTENER",  # the profiler's
)
_DEFAULT = "default"
_NEVER_EMPTY = ("store", "public_url", "agents_join", "agents_metrics")  # where they are given
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_STORE = re.compile(r"sqlite:///.+|postgres(ql)?(\+psycopg)?://.+")
_WEB = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_URL_PASSWORD = re.compile(r"(://[^:@]*):.*@")
_QUERY_PASSWORD = re.compile(r"(password=)[^&]*", re.IGNORECASE)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"should be text, not {quoted(value)}")
    return value


def comma_separated(value: Any) -> tuple[str, ...]:
    """Words of a list, or of a text with commas between them."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"should be a list of texts, not {quoted(value)}")
    return tuple(value)


def _passable(value: Any) -> tuple[str, ...]:
    names = comma_separated(value)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.upper().startswith(_PREFIX):
            raise ValueError(f"should name variables that are not Trimtab's own, not {quoted(name)}")
    return names


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError(f"should be true or false, not {quoted(value)}")


def _choice(*allowed: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value in allowed:
            return value
        near = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise ValueError(f"should be {' or '.join(allowed)}, not {quoted(value)}{near}")

    return BeforeValidator(check)


def _quantity(
    parse: Callable[[str], float], right: str, least: float, show: Callable[[float], str], whole: bool = False
) -> BeforeValidator:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"should be {right}, not {quoted(value)}")
        try:
            amount = parse(str(value))
        except (BadInputError, ValueError):
            raise ValueError(f"should be {right}, not {quoted(value)}") from None
        if not least <= amount < float("inf"):
            raise ValueError(f"should be {right}, of at least {show(least)}, not {quoted(value)}")
        return round(amount) if whole else amount

    return BeforeValidator(check)


def _address(value: Any) -> str:
    try:
        split_address(_text(value))
    except BadInputError as error:
        raise ValueError(f"should be HOST:PORT: {error}") from None
    return str(value)


def _web_url(value: Any) -> str:
    if not isinstance(value, str) or not (value == "" or _WEB.fullmatch(value)):
        raise ValueError("should be a URL such as https://trimtab.example, without a user or a query")
    return value.rstrip("/")


def _store_url(value: Any) -> str:
    # The URL is not repeated in the message: it may hold a password.
    if not isinstance(value, str) or not (value == "" or _STORE.fullmatch(value)):
        raise ValueError("should be sqlite:///path/to/file or postgresql://user@host/database")
    return value


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(comma_separated)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Address = Annotated[str, BeforeValidator(_address)]
Duration = Annotated[float, _quantity(parse_duration, "a duration such as 90s or 2h", 0.1, format_duration)]
Size = Annotated[int, _quantity(parse_bytes, "a size such as 1MiB", 1024, format_bytes, whole=True)]
Count = Annotated[int, _quantity(int, "a whole number", 0, "{:g}".format, whole=True)]
Rate = Annotated[float, _quantity(float, "a number", 0.0, "{:g}".format)]


def _setting(default: Any, metavar: str, help: str, flag: str = "") -> Any:
    return Field(default=default, description=help, json_schema_extra={"metavar": metavar, "flag": flag})


@validated(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Settings:
    """Durations in seconds, sizes in bytes; an empty value is not set."""

    store: Annotated[str, BeforeValidator(_store_url)] = _setting(
        "", "URL", "URL of the store; default: trimtab.sqlite in Trimtab's home."
    )
    engine: Text = _setting(
        "local://", "URL", "Engine that runs jobs: local://, ray://…, slurm://…, kubernetes://…"
    )
    policy: Text = _setting(
        "trimtab", "NAME", "The policy that orders jobs; its settings follow a colon, as in las:KEY=VALUE."
    )
    round: Duration = _setting(10.0, "DURATION", "Longest time between two rounds of the scheduler.")
    prices: Texts = _setting(
        (), "KIND=PRICE", "Price of one accelerator of a kind: a100=$3.20/h.", flag="--price"
    )
    pass_variables: Annotated[tuple[str, ...], BeforeValidator(_passable)] = _setting(
        (), "NAME", "Variable of this environment that admins' jobs may name in `pass`.", flag="--pass"
    )
    listen: Address = _setting("127.0.0.1:7430", "HOST:PORT", "Address of the API and the dashboard.")
    public_url: Annotated[str, BeforeValidator(_web_url)] = _setting(
        "", "URL", "URL by which others reach it, if that is not the listen address: https://…"
    )
    tls_certificate: Text = _setting("", "FILE", "TLS certificate with its chain (PEM); needs tls_key.")
    tls_key: Text = _setting("", "FILE", "Private key of the TLS certificate (PEM).")
    insecure: Switch = _setting(
        False, "", "Listen beyond this machine without TLS, behind a proxy that terminates TLS."
    )
    tokens: Annotated[str, _choice("auto", "always")] = _setting(
        "auto",
        "auto|always",
        "always: every caller needs a token; auto: callers on this machine need none until a token exists.",
    )
    rate_limit: Rate = _setting(200.0, "NUMBER", "Requests per second and token, on average; 0 for no limit.")
    connections_per_client: Count = _setting(
        1000, "NUMBER", "Open connections per client address; 0 for no limit, as behind a proxy."
    )
    body_limit: Size = _setting(2**20, "SIZE", "Maximum size of a request body.")
    dashboard: Switch = _setting(True, "", "Serve the dashboard.")
    metrics: Switch = _setting(True, "", "Serve /metrics for Prometheus beside the API.")
    pools: Text = _setting("", "FILE", "A YAML file of pools; their controller then runs too.")
    agents_listen: Address = _setting(
        "127.0.0.1:7433", "HOST:PORT", "With pools: address to which the nodes' agents connect."
    )
    agents_join: Annotated[str, BeforeValidator(lambda value: value and _address(value))] = _setting(
        "", "HOST:PORT", "With pools: address at which nodes join; default: the port after agents_listen."
    )
    agents_metrics: Annotated[str, BeforeValidator(lambda value: value and _address(value))] = _setting(
        "", "HOST:PORT", "With pools: address at which /metrics of the containers is served."
    )
    log_level: Annotated[str, _choice("debug", "info", "warning", "error")] = _setting(
        "info", "debug|info|warning|error", "Lowest level of messages that are logged."
    )
    log_format: Annotated[str, _choice("text", "json")] = _setting(
        "text", "text|json", "Log as lines of text or as JSON objects."
    )


@dataclass(frozen=True, slots=True)
class ServiceSetting:
    """A field of `Settings`: its name in a file, its flag, its help."""

    name: str
    flag: str
    metavar: str
    help: str
    default: Any

    @property
    def variable(self) -> str:
        return f"{_PREFIX}{self.name.upper()}"

    @property
    def is_switch(self) -> bool:
        return isinstance(self.default, bool)

    def text(self, value: Any) -> str:
        """A value as it is written in a file: 10s, 1MiB, true."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list | tuple):
            return ", ".join(value)
        if self.metavar == "DURATION":
            return f"{value:g}s"
        if self.metavar == "SIZE":
            short = format_bytes(value).replace(" ", "")
            return short if parse_bytes(short) == value else f"{value}"
        return f"{value:g}" if isinstance(value, float) else f"{value}"


def _described(name: str, field: Any) -> ServiceSetting:
    extra = field.json_schema_extra
    flag = extra["flag"] or f"--{name.replace('_', '-')}"
    return ServiceSetting(name, flag, extra["metavar"], field.description, field.default)


_SETTINGS = {name: _described(name, field) for name, field in vars(Settings)["__pydantic_fields__"].items()}


def settings_list() -> tuple[ServiceSetting, ...]:
    return tuple(_SETTINGS.values())


def setting_of(name: str) -> ServiceSetting:
    """The setting of that name in a file; `KeyError` if there is none."""
    return _SETTINGS[name]


def masked(text: str) -> str:
    """A URL without its passwords; other text as it is."""
    return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


def plain_value(settings: Settings, name: str) -> Any:
    """A setting's value as JSON can hold it, passwords struck out."""
    value = getattr(settings, name)
    if isinstance(value, tuple):
        return [masked(word) for word in value]
    return masked(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, the origin of each by name, and the file that was read, if any."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


def read_settings(
    flags: Mapping[str, Any] | None = None,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    places: Sequence[Path] | None = None,
) -> LoadedSettings:
    """Settings from flags, variables, a file and defaults.

    `flags` are by the settings' names; `config` is the file named on the command line. Without one, and
    without `$TRIMTAB_CONFIG`, it is the first of `places` that exists.
    """
    environment = os.environ if environment is None else environment
    file = _file(config, environment, (home() / _NAME, SYSTEM_FILE) if places is None else places)
    given: dict[str, tuple[Any, str]] = {}
    if file is not None:
        given |= _in_file(file)
    given |= {
        setting.name: (value, setting.variable)
        for setting in settings_list()
        if (
            value := environment.get(setting.variable, "").strip()
        )  # files of secrets often end in a new line
    }
    given |= {name: (value, setting_of(name).flag) for name, value in (flags or {}).items()}
    return _loaded(given, file)


def read_file(path: Path) -> LoadedSettings:
    return _loaded(_in_file(path), path)


def check_names(settings: Settings) -> None:
    """Refuse an unknown engine, policy or price; imports the rooms that know them."""
    from trimtab.engines import ENGINES
    from trimtab.schedule import policy

    scheme = settings.engine.partition("://")[0]
    if "://" not in settings.engine or scheme not in ENGINES:
        known = [f"{name}://" for name in ENGINES]
        near = did_you_mean(f"{scheme}://", known)
        shown = masked(one_line(settings.engine))
        raise BadInputError(f"engine: there is none at {shown:.40}{near}; there are {', '.join(known)}")
    policy(settings.policy)
    parse_prices(settings.prices)


def parse_prices(prices: Sequence[str]) -> dict[str, float]:
    """Dollars per second by kind of accelerator, from texts like a100=$3.20/h."""
    from trimtab.schedule import kind_of

    cost = {}
    for text in prices:
        kind, equals, price = text.partition("=")
        if not equals:
            raise BadInputError(f'prices: "{one_line(text):.40}" should be like a100=$3.20/h')
        cost[kind_of(kind)] = parse_price(price)
    return cost


def near_misses(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable whose name is close to that of a setting."""
    known = {setting.variable.removeprefix(_PREFIX): setting.variable for setting in settings_list()}
    others = (name for name in sorted(environment) if name.startswith(_PREFIX) and name not in _NOT_SETTINGS)
    sentences = []
    for name in others:
        word = name.removeprefix(_PREFIX)
        near = get_close_matches(word, known, n=1)
        if near and word not in known:
            sentences.append(f"{name} is not a setting; did you mean {known[near[0]]}?")
    return sentences


def _file(config: Path | None, environment: Mapping[str, str], places: Sequence[Path]) -> Path | None:
    named = environment.get(FILE_VARIABLE)
    if config is not None or named:
        return config or Path(str(named))
    return next((path for path in places if os.path.isfile(path)), None)


def _in_file(path: Path) -> dict[str, tuple[Any, str]]:
    """By name: the value in the file, and the file with the line it is on."""
    content = read_yaml(path, "of settings")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadInputError(f"{path} should have a setting on each line, as in listen: 127.0.0.1:7430")
    lines = _lines(path)
    for name in content:
        if name not in _SETTINGS:
            word = one_line(name)
            raise BadInputError(
                f'{path}, line {lines.get(name, 1)}: there is no setting "{word:.40}"'
                f"{did_you_mean(word, _SETTINGS)}; trimtab config show lists them"
            )
    return {name: (value, f"{path}, line {lines.get(name, 1)}") for name, value in content.items()}


def _lines(path: Path) -> dict[Any, int]:
    """The line of each setting by its name; a name that is there twice is refused."""
    import yaml

    node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    lines: dict[Any, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise BadInputError(
                f"{path}, line {line}: {one_line(key.value):.40} is set on line {lines[key.value]} already"
            )
        lines[key.value] = line
    return lines


def _loaded(given: Mapping[str, tuple[Any, str]], file: Path | None) -> LoadedSettings:
    origins = dict.fromkeys(_SETTINGS, _DEFAULT) | {name: origin for name, (_, origin) in given.items()}
    for name, (value, origin) in given.items():
        if value is None or (value == "" and name in _NEVER_EMPTY):  # a key with nothing after it
            raise BadInputError(f"{origin}: {name} has no value; give it one, or leave the line out")
    try:
        settings = Settings(**{name: value for name, (value, _) in given.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        problem = first.get("ctx", {}).get("error") or first["msg"]
        raise BadInputError(f"{origins[name]}: {name} {problem}") from None
    _check_together(settings, origins)
    return LoadedSettings(settings, origins, file)


def _check_together(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse settings that contradict each other."""
    for has, lacks in (("tls_key", "tls_certificate"), ("tls_certificate", "tls_key")):
        if getattr(settings, has) and not getattr(settings, lacks):
            raise BadInputError(f"{origins[has]}: {has} needs {lacks} too; give both or none")
    host, port = split_address(settings.listen)
    if not is_loopback(host) and not settings.tls_certificate and not settings.insecure:
        raise BadInputError(
            f"{origins['listen']}: tokens would pass unencrypted to {settings.listen}; give tls_certificate "
            f"and tls_key, or set insecure: true if a proxy in front of it encrypts"
        )
    if settings.tls_certificate and settings.public_url.startswith("http:"):
        raise BadInputError(
            f"{origins['public_url']}: public_url begins with http: although there is a certificate; "
            f"write https:"
        )
    for name in ("agents_join", "agents_metrics"):
        if getattr(settings, name) and not settings.pools:
            raise BadInputError(f"{origins[name]}: {name} needs pools too; give both or none")
    if settings.pools and port and settings.listen == settings.agents_listen:
        raise BadInputError(
            f"{origins['agents_listen']}: agents_listen and listen are both {settings.listen}; "
            f"give them different ports"
        )
