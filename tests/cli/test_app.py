"""Help that teaches, a version, and errors in one sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from trimtab import __version__

Trimtab = Callable[..., Any]


def test_help_names_every_command_and_where_to_start(trimtab: Trimtab) -> None:
    out = trimtab("--help").out
    for command in ("profile", "recommend", "decisions", "outcome", "catalog", "bench", "calibrate"):
        assert command in out
    assert "trimtab profile -- python train.py" in out


def test_without_arguments_it_shows_the_help(trimtab: Trimtab) -> None:
    assert "Usage" in trimtab().out


def test_version(trimtab: Trimtab) -> None:
    assert trimtab("--version").out == f"trimtab {__version__}\n"


def test_an_unknown_command_or_option_exits_with_2(trimtab: Trimtab) -> None:
    assert trimtab("sail").status == 2
    assert trimtab("recommend", "--tack").status == 2


@pytest.mark.parametrize("command", ["recommend", "decisions", "outcome", "bench", "calibrate", "profile"])
def test_every_command_explains_itself(trimtab: Trimtab, command: str) -> None:
    called = trimtab(command, "--help")
    assert called.status == 0
    assert len(called.out.splitlines()) > 8


def test_benches_are_listed_and_print_their_contract_last(trimtab: Trimtab) -> None:
    assert "gpu-steps" in trimtab("bench").out
    last = trimtab("bench", "gpu-steps", "--shipped", "--json").out.splitlines()[-1]
    assert last.startswith('{"bench": "gpu-steps"')
