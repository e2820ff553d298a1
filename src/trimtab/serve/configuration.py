"""Where settings come from: a flag before a variable before the file before the default."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, did_you_mean, home, is_loopback, one_line, split_address
from trimtab.kernel import read_yaml
from trimtab.serve.settings import Setting, Settings, masked, setting_of, settings_list

FILE_VARIABLE = "TRIMTAB_CONFIG"
SYSTEM_FILE = Path("/etc/trimtab/trimtab.yaml")
_NAME = "trimtab.yaml"
_PREFIX = "TRIMTAB_"
_NOT_SETTINGS = (
    *("TRIMTAB_HOME", FILE_VARIABLE, "TRIMTAB_SERVER", "TRIMTAB_TOKEN"),
    "TRIMTAB_LISTENER",  # the profiler's
)
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Told:
    """The settings, by name where each of them comes from, and the file that was read, if any."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


def read_settings(
    flags: Mapping[str, Any] | None = None,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    places: Sequence[Path] | None = None,
) -> Told:
    """Settings as everyone has them who starts a Trimtab now.

    `flags` are by the settings' names; `config` is the file named on the command line. Without one, and
    without `$TRIMTAB_CONFIG`, it is the first of `places` that exists.
    """
    environment = os.environ if environment is None else environment
    file = _file(config, environment, (home() / _NAME, SYSTEM_FILE) if places is None else places)
    given: dict[str, tuple[Any, str]] = {}
    if file is not None:
        given |= _of_file(file)
    given |= {
        each.name: (value, each.variable)
        for each in settings_list()
        if (value := environment.get(each.variable, "").strip())  # files of secrets often end in a new line
    }
    given |= {name: (value, setting_of(name).flag) for name, value in (flags or {}).items()}
    return _told(given, file)


def read_file(path: Path) -> Told:
    """What a file alone says."""
    return _told(_of_file(path), path)


def check_names(settings: Settings) -> None:
    """Refuse an engine, a policy or a price that nobody knows; loads those who know."""
    from trimtab.core import parse_price
    from trimtab.engines import ENGINES
    from trimtab.schedule import kind_of, policy

    scheme = settings.engine.partition("://")[0]
    if "://" not in settings.engine or scheme not in ENGINES:
        there = [f"{name}://" for name in ENGINES]
        near = did_you_mean(f"{scheme}://", there)
        shown = masked(one_line(settings.engine))
        raise BadInputError(f"engine: there is none at {shown:.40}{near}; there are {', '.join(there)}")
    policy(settings.policy)
    for each in settings.prices:
        kind, equals, price = each.partition("=")
        if not equals:
            raise BadInputError(f'prices: "{one_line(each):.40}" should be like a100=$3.20/h')
        kind_of(kind)
        parse_price(price)


def near_misses(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a setting's and is none: nobody reads it."""
    known = {each.variable.removeprefix(_PREFIX): each.variable for each in settings_list()}
    others = (name for name in sorted(environment) if name.startswith(_PREFIX) and name not in _NOT_SETTINGS)
    found = []
    for name in others:
        word = name.removeprefix(_PREFIX)
        near = get_close_matches(word, known, n=1)
        if near and word not in known:
            found.append(f"{name} is not a setting; did you mean {known[near[0]]}?")
    return found


def _file(config: Path | None, environment: Mapping[str, str], places: Sequence[Path]) -> Path | None:
    named = environment.get(FILE_VARIABLE)
    if config is not None or named:
        return config or Path(str(named))
    return next((path for path in places if os.path.isfile(path)), None)


def _of_file(path: Path) -> dict[str, tuple[Any, str]]:
    """By name: what the file says, and where it stands."""
    told = read_yaml(path, "of settings")
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise BadInputError(f"{path} should have a setting on each line, as in listen: 127.0.0.1:7430")
    lines = _lines(path)
    names = [each.name for each in settings_list()]
    for name in told:
        if name not in names:
            word = one_line(name)
            raise BadInputError(
                f'{path}, line {lines.get(name, 1)}: there is no setting "{word:.40}"'
                f"{did_you_mean(word, names)}; trimtab config show lists them"
            )
    return {name: (value, f"{path}, line {lines.get(name, 1)}") for name, value in told.items()}


def _lines(path: Path) -> dict[Any, int]:
    """By name, the line each setting is on; one that is there twice is refused, since only one can count."""
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


def _told(given: Mapping[str, tuple[Any, str]], file: Path | None) -> Told:
    found = {name: _value(setting_of(name), value, origin) for name, (value, origin) in given.items()}
    settings = Settings(**found)
    origins = {each.name: _DEFAULT for each in settings_list()}
    origins |= {name: origin for name, (_, origin) in given.items()}
    _check_together(settings, origins)
    return Told(settings, origins, file)


def _value(setting: Setting, value: Any, origin: str) -> Any:
    if value is None:  # a key of a file with nothing after it
        raise BadInputError(f"{origin}: {setting.name} has no value; give it one, or leave the line out")
    try:
        return setting.read(value)
    except BadInputError as error:
        raise BadInputError(f"{origin}: {setting.name} {error}") from None


def _check_together(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse what cannot be meant together."""
    for has, lacks in (("tls_key", "tls_certificate"), ("tls_certificate", "tls_key")):
        if getattr(settings, has) and not getattr(settings, lacks):
            raise BadInputError(f"{origins[has]}: {has} is of no use without {lacks}; give both or none")
    host, port = split_address(settings.listen)
    if not is_loopback(host) and not settings.tls_certificate and not settings.insecure:
        raise BadInputError(
            f"{origins['listen']}: tokens would pass unencrypted to {settings.listen}; give tls_certificate "
            f"and tls_key, or say insecure: true where something in front of it encrypts"
        )
    if settings.tls_certificate and settings.public_url.startswith("http:"):
        raise BadInputError(
            f"{origins['public_url']}: public_url begins with http: although there is a certificate; "
            f"write https:"
        )
    for name in ("agents_join", "agents_metrics"):
        if getattr(settings, name) and not settings.pools:
            raise BadInputError(f"{origins[name]}: {name} is of no use without pools; give those as well")
    if settings.pools and port and settings.listen == settings.agents_listen:
        raise BadInputError(
            f"{origins['agents_listen']}: agents_listen and listen are both {settings.listen}; "
            f"give them different ports"
        )
