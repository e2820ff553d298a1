"""Tables fit the terminal: no name is broken, a row takes at most two lines; flags are shown as flags."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.app import COMMANDS
from trimtab.cli.terminal import print_rows
from trimtab.core import Answer, Decision, Estimate, Profile
from trimtab.observe import save_profile
from trimtab.store import JobRecord, JobRun, JobState, Outlook, Part, open_store

Trimtab = Callable[..., Any]
NAME = "resnet50-imagenet-with-a-long-name"
REASON = "the tenant vision uses 16 of its quota of 16 accelerators and nothing can be borrowed; " * 3


@pytest.fixture(params=[80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def test_jobs_take_two_lines_each(trimtab: Trimtab, width: int) -> None:
    run = JobRun(run_id="r", parts=(Part("gpu-node-a100-17", 8),), seconds=7200.0, spent=123.4, reason=REASON)
    with open_store() as store:
        records = [
            JobRecord(
                id=f"abcdef0{number}", created=1.0, name=NAME, tenant="vision", application="a", state=state,
                spec={}, run=run, done=12345.0, outlook=Outlook(why=REASON),
            )
            for number, state in enumerate((JobState.RUNNING, JobState.ENDED))
        ]  # fmt: skip
        store.jobs.submit(records)
    lines = trimtab("jobs").out.splitlines()
    assert len(lines) == 1 + 2 * 2
    assert max(map(len, lines)) <= width
    assert sum(NAME in line for line in lines) == 2


def test_decisions_take_two_lines_each_with_units_and_without_none(trimtab: Trimtab, width: int) -> None:
    time = Estimate(7200.0, 3600.0, 9000.0, 0.9, "s")
    action = {"cpu": 2.0, "memory": 3 * 2**30, "accelerator": None, "accelerators": 0}
    decision = Decision(
        "abcdef012345", 1.0, "pipeline", f"{NAME}/train", action, {"time": time}, "rule:use",
        Answer("rule:use", action), None, (), "it used that",
    )  # fmt: skip
    with open_store() as store:
        store.ledger.record(decision)
        store.ledger.record(replace(decision, id="bcdef0123456"))
    lines = trimtab("decisions").out.splitlines()
    assert len(lines) == 1 + 2 * 2
    assert max(map(len, lines)) <= width
    assert sum(f"{NAME}/train" in line for line in lines) == 2
    for out in ("\n".join(lines), trimtab("decisions", "abcdef").out):
        assert "memory=3 GiB" in out
        assert "None" not in out


def test_recommendations_take_two_lines_each(
    trimtab: Trimtab, width: int, tmp_path: Path, make_profile: Callable[..., Profile]
) -> None:
    save_profile(make_profile(), tmp_path / "profile.json")
    out = trimtab("recommend", str(tmp_path / "profile.json"), "--max-nodes", "4", "--spot").out
    lines = out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:1] == ["#"])
    table = lines[head : head + 21]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(table)
    assert [int(line.split()[0]) for line in table[1::2]] == list(range(1, 11))
    assert ("evidence" in table[0]) == (width == 120)


def test_optional_columns_are_dropped_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_rows(("name", ">size", "kind"), [("a" * 12, "1", "k" * 8)], optional=("kind", ">size"))
    assert capsys.readouterr().out == f"name          size\n{'a' * 12}     1\n"


def test_a_table_without_rows_is_its_heads(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("name", ">size"), [])
    assert capsys.readouterr().out == "name  size\n"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("profile",)])
def test_help_shows_flags_without_a_type(trimtab: Trimtab, command: str) -> None:
    out = trimtab(command, "--help").out
    assert not re.search(r"<bool>|\bBOOLEAN\b|\bbool\b", out, re.IGNORECASE)


def test_a_token_says_for_which_tenant_it_is(trimtab: Trimtab) -> None:
    assert (
        'the tenant default, not of all (--tenant "*")'
        in trimtab("access", "make", "a", "--role", "admin").error
    )
    assert "all tenants" in trimtab("access", "make", "b", "--role", "admin", "--tenant", "*").error
    assert "the tenant team" in trimtab("access", "make", "c", "--tenant", "team").error
    assert trimtab("access", "ls").out.count("default") == 1
