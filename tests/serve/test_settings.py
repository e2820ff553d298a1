"""What settings there are: the same names in a file, in variables, in flags and in the manual."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.serve import Settings, masked, plain_value, settings_list

MANUAL = Path(__file__).resolve().parent.parent.parent / "docs" / "operations.md"


def test_every_field_is_a_setting_with_a_variable_a_flag_and_help() -> None:
    assert [each.name for each in settings_list()] == [each.name for each in fields(Settings)]
    for each in settings_list():
        assert each.variable == f"TRIMTAB_{each.name.upper()}"
        assert each.flag.startswith("--")
        assert each.help.endswith((".", "…", "/h."))


def test_every_default_is_a_value_that_can_be_written_down() -> None:
    for each in settings_list():
        if each.default not in ("", ()):
            assert each.read(each.default) == each.default


def test_the_manual_lists_every_setting_with_its_default() -> None:
    rows = [line for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {line.split("`")[1]: line for line in rows}
    for each in settings_list():
        assert each.name in named, f"docs/operations.md has no row for {each.name}"
        assert each.help in named[each.name]


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
