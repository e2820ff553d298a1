"""Commands need what they use, and no more."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.app import COMMANDS, load_command
from trimtab.cli.place import HERE_ALONE, KEEP_NOTHING

_WITHOUT = """
import sys
for name in ("fastapi", "httptools", "httpx", "nicegui", "orjson", "uvicorn", "uvloop", "websockets"):
    sys.modules[name] = None
from trimtab.cli import main
main()
"""


def _run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "TRIMTAB_HOME": str(home)}
    command = [sys.executable, "-c", _WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_commands_on_the_store_here_work_without_what_a_server_needs(tmp_path: Path) -> None:
    for words in (("jobs",), ("decisions",), ("tenants", "ls"), ("access", "ls"), ("fabric", "advise", "8")):
        done = _run(tmp_path, *words)
        assert done.returncode == 0, done.stderr


def test_asking_a_server_without_what_it_needs_says_what_to_install(tmp_path: Path) -> None:
    done = _run(tmp_path, "--server", "http://127.0.0.1:9", "jobs")
    assert done.returncode != 0
    assert "pip install 'trimtab[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_keeps_nothing_runs_as_if_no_server_were_named(
    monkeypatch: pytest.MonkeyPatch, trimtab: Callable[..., Any]
) -> None:
    for words in (("bench",), ("config", "show"), ("catalog", "ls", "--accelerators")):
        monkeypatch.setenv("TRIMTAB_SERVER", "http://127.0.0.1:9")
        called = trimtab(*words)
        assert called.status == 0, called.error
    monkeypatch.setenv("TRIMTAB_SERVER", "http://127.0.0.1:9")
    trimtab("bench")
    assert "TRIMTAB_SERVER" not in os.environ, "what a bench starts would ask the server"


def test_the_documentation_names_the_commands_that_a_server_does_not_answer() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    table = text[text.index("| command |") :].partition("\n\n")[0]
    rows = {row.split("|")[2].strip(): row.split("|")[1] for row in table.splitlines()[2:]}
    del rows["there"]
    named = {where: set(re.findall(r"`([^`]+)`", commands)) for where, commands in rows.items()}
    assert set().union(*named.values()) <= set(_commands())
    assert sum(map(len, named.values())) == len(set().union(*named.values()))
    assert {name.split()[0] for name in named["refused"]} == {*HERE_ALONE, "fabric", "models"}
    assert {name.split()[0] for name in named["here, whatever server is named"]} >= set(KEEP_NOTHING)


def _commands() -> Iterator[str]:
    """Every command as it is typed; of a group that does something by itself, the group too."""
    for name in COMMANDS:
        command = load_command(name)
        if not hasattr(command, "commands"):
            yield name
            continue
        if command.invoke_without_command:
            yield name
        yield from (f"{name} {inner}" for inner in command.commands)
