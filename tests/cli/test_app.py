"""Help that teaches, a version, and errors in one sentence."""

import ast
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from trimtab import __version__
from trimtab.cli.app import COMMANDS, load_command

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


def test_without_the_benchmarks_it_says_how_to_install_them(
    trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.cli.bench.entry_points", lambda group: ())
    called = trimtab("bench", "gpu-steps")
    assert called.status == 2
    assert called.out == ""
    assert "pip install --editable benchmarks" in called.error
    assert len(called.error.splitlines()) == 1


def test_every_command_of_the_table_can_be_loaded_and_explains_itself() -> None:
    for name in COMMANDS:
        command = load_command(name)
        assert command.name == name
        assert command.help


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; sys.argv = ['trimtab', '--help']\n"
        "from trimtab.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('trimtab.')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(ast.literal_eval(done.stderr))
    assert {name for name in loaded if name.startswith("trimtab.cli.")} == {
        "trimtab.cli.app",
        "trimtab.cli.place",
        "trimtab.cli.terminal",
    }
    assert not {"trimtab.serve", "trimtab.store", "trimtab.predict"} & loaded


def test_ctrl_c_in_a_finalizer_still_ends_the_command() -> None:
    code = (
        "import os, signal, sys, time\n"
        "from trimtab.cli import app\n"
        "class Interrupted:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "def command():\n"
        "    Interrupted()\n"
        "    time.sleep(60)\n"
        "app.app = command\n"
        "app.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
