"""Settings: one name in file, variable, flag and manual; which source counts; refusals that say where."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.serve import (
    Settings,
    check_names,
    masked,
    near_misses,
    plain_value,
    read_file,
    read_settings,
    settings_list,
)

MANUAL = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "settings.md"

PORTS = st.integers(1, 65535).map(lambda port: f"127.0.0.1:{port}")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "listen": PORTS,
    "policy": st.sampled_from(["trimtab", "fifo", "las", "drf"]),
    "round": st.floats(0.1, 1e6),
    "rate_limit": st.floats(0, 1e6),
    "body_limit": st.integers(1024, 2**40),
    "dashboard": st.booleans(),
    "metrics": st.booleans(),
    "tokens": st.sampled_from(["auto", "always"]),
    "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "prices": st.lists(st.sampled_from(["a100=$3/h", "t4=$1/h"]), min_size=1, max_size=2),
}
SOURCE = st.fixed_dictionaries({}, optional=VALUES)


def test_every_field_is_a_setting_with_a_variable_a_flag_and_help() -> None:
    assert [item.name for item in settings_list()] == [item.name for item in fields(Settings)]
    for item in settings_list():
        assert item.variable == f"TRIMTAB_{item.name.upper()}"
        assert item.flag.startswith("--")
        assert item.help.endswith((".", "…", "/h."))


def test_every_default_is_a_value_that_can_be_written_down() -> None:
    for item in settings_list():
        if item.default not in ("", ()):
            assert getattr(Settings(**{item.name: item.default}), item.name) == item.default
            written = item.text(item.default)
            assert getattr(Settings(**{item.name: written}), item.name) == item.default, written


def test_the_manual_lists_every_setting_with_its_default() -> None:
    rows = [line for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {line.split("`")[1]: line for line in rows}
    for item in settings_list():
        assert item.name in named, f"docs/reference/settings.md has no row for {item.name}"
        assert item.help in named[item.name]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:se@cr/et@host/db", "postgresql://user:***@host/db"),
        ("postgresql://host/db?user=u&password=secret&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("sqlite:///var/lib/trimtab.sqlite", "sqlite:///var/lib/trimtab.sqlite"),
    ],
)
def test_a_password_is_struck_out(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert plain_value(Settings(store=url), "store") == shown


@given(st.text(st.characters(codec="ascii", exclude_characters=" \n\r"), min_size=6))
def test_no_password_whatever_its_characters_is_shown(secret: str) -> None:
    shown = masked(f"postgresql://someone:{secret}@db.internal/trimtab")
    assert shown == "postgresql://someone:***@db.internal/trimtab"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trimtab.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flags=SOURCE, variables=SOURCE, lines=SOURCE)
def test_a_flag_counts_before_a_variable_before_the_file_before_the_default(
    tmp_path: Path, flags: dict[str, Any], variables: dict[str, Any], lines: dict[str, Any]
) -> None:
    path = written(tmp_path, yaml.safe_dump(lines))
    environment = {f"TRIMTAB_{name.upper()}": as_text(value) for name, value in variables.items()}
    result = read_settings(flags, environment=environment, places=[path])
    for item in settings_list():
        name = item.name
        found = getattr(result.settings, name)
        expected = flags.get(name, variables.get(name, lines.get(name, item.default)))
        assert found == (tuple(expected) if isinstance(expected, list) else expected)
        origin = result.origins[name]
        if name in flags:
            assert origin == item.flag
        elif name in variables:
            assert origin == item.variable
        elif name in lines:
            assert origin.startswith(f"{path}, line ")
        else:
            assert origin == "default"


def test_the_file_named_counts_before_the_variable_before_home_before_the_system(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("flag.yaml", "variable.yaml", "home.yaml", "system.yaml")]
    for port, path in enumerate(paths, 1):
        path.write_text(f"listen: 127.0.0.1:{port}\n", encoding="utf-8")
    flag, variable, *places = paths
    environment = {"TRIMTAB_CONFIG": str(variable)}
    assert read_settings(config=flag, environment=environment, places=places).file == flag
    assert read_settings(environment=environment, places=places).file == variable
    assert read_settings(environment={}, places=places).settings.listen == "127.0.0.1:3"
    places[0].unlink()
    assert read_settings(environment={}, places=places).settings.listen == "127.0.0.1:4"
    places[1].unlink()
    result = read_settings(environment={}, places=places)
    assert (result.file, result.settings) == (None, Settings())


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="file"):
        read_settings(environment={"TRIMTAB_CONFIG": str(tmp_path / "none.yaml")}, places=[])


def test_an_empty_variable_is_as_good_as_none_and_white_space_around_one_does_not_count() -> None:
    assert read_settings(environment={"TRIMTAB_LISTEN": ""}, places=[]).settings == Settings()
    result = read_settings(environment={"TRIMTAB_STORE": "postgresql://me@db/trimtab\n"}, places=[])
    assert result.settings.store == "postgresql://me@db/trimtab"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, "# nothing yet\n")).settings == Settings()


def test_durations_and_sizes_are_written_as_people_do(tmp_path: Path) -> None:
    path = written(tmp_path, "round: 1m30s\nbody_limit: 4MiB\n")
    result = read_file(path).settings
    assert (result.round, result.body_limit) == (90.0, 4 * 2**20)


@pytest.mark.parametrize(
    ("text", "place", "wrong"),
    [
        ("engine: local://\nlistn: 1", "line 2:", '"listn" (did you mean listen?)'),
        ("listen: 7430", "line 1: listen", "not 7430"),
        ("listen: here", "line 1: listen", "here"),
        ("\n\nround: soon", "line 3: round", "not 'soon'"),
        ("round: 1ms", "line 1: round", "100 ms"),
        ("dashboard: perhaps", "line 1: dashboard", "not 'perhaps'"),
        ("log_level: inof", "line 1: log_level", "not 'inof'"),
        ("prices: 3", "line 1: prices", "3"),
        ("body_limit: -1", "line 1: body_limit", "-1"),
        ("body_limit: 1kB", "line 1: body_limit", "1kB"),
        ("rate_limit: .nan", "line 1: rate_limit", "nan"),
        ("listen:", "line 1: listen", "no value"),
        ("store: ''", "line 1: store", "no value"),
        ("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", "line 2: listen", "line 1"),
        ("- listen", "", "a setting on each line"),
        ("store: mysql://u:secret@host/db", "line 1: store", "sqlite:///"),
        ("public_url: trimtab.example", "line 1: public_url", "URL"),
        ("tls_key: key.pem", "line 1: tls_key", "tls_certificate"),
        ("tls_certificate: cert.pem", "line 1: tls_certificate", "tls_key"),
        ("listen: 0.0.0.0:7430", "line 1:", "0.0.0.0:7430"),
        ("listen: '[::]:7430'", "line 1:", "[::]:7430"),
        ("tls_key: k\ntls_certificate: c\npublic_url: http://a.example", "line 3: public_url", "http:"),
        ("agents_join: a:1", "line 1: agents_join", "pools"),
        ("agents_metrics: a:1", "line 1: agents_metrics", "pools"),
        ("pools: p\nagents_listen: 127.0.0.1:7430", "line 2: agents_listen", "127.0.0.1:7430"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(
    tmp_path: Path, text: str, place: str, wrong: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInputError) as refused:
        read_file(path)
    message = str(refused.value)
    assert message.startswith(f"{path}, {place}" if place else str(path))
    assert wrong in message
    assert "secret" not in message
    assert "\n" not in message


def test_a_wrong_variable_or_flag_is_named() -> None:
    with pytest.raises(BadInputError, match=r"^TRIMTAB_ROUND: round .*soon"):
        read_settings(environment={"TRIMTAB_ROUND": "soon"}, places=[])
    with pytest.raises(BadInputError, match=r"^--round: round .*soon"):
        read_settings({"round": "soon"}, environment={"TRIMTAB_ROUND": "5s"}, places=[])


def test_listening_beyond_this_machine_takes_tls_or_the_word_for_it() -> None:
    with_tls = {"listen": "0.0.0.0:7430", "tls_key": "k", "tls_certificate": "c"}
    assert read_settings(with_tls, environment={}, places=[]).settings.tls_key == "k"
    output = {"listen": "0.0.0.0:7430", "insecure": True}
    assert read_settings(output, environment={}, places=[]).settings.insecure
    assert read_settings({"listen": "[::1]:7430"}, environment={}, places=[]).settings.listen == "[::1]:7430"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"engine": "slum://"}, "slurm://"),
        ({"engine": "local"}, "engine: .*local"),
        ({"policy": "sooner"}, "sooner"),
        ({"prices": ("a100",)}, "prices: .*a100"),
        ({"prices": ("a100=dear",)}, "dear"),
    ],
)
def test_names_that_nobody_knows_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError if "policy" not in wrong else Exception, match=sentence):
        check_names(Settings(**wrong))


def test_a_variable_that_is_nearly_a_setting_is_pointed_out() -> None:
    environment = {"TRIMTAB_LISTN": "x", "TRIMTAB_HOME": "/h", "TRIMTAB_LISTENER": "/l", "TRIMTAB_JOB": "j"}
    environment |= {"TRIMTAB_ENGINE": "local://", "TRIMTAB_CONFIG": "c", "HOME": "/root"}
    assert near_misses(environment) == ["TRIMTAB_LISTN is not a setting; did you mean TRIMTAB_LISTEN?"]
