"""`trimtab config`: what holds and by what, without its secrets; whether a file is right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Trimtab = Callable[..., Any]


def test_show_says_where_every_value_comes_from(
    trimtab: Trimtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trimtab.yaml"
    file.write_text("policy: fifo\nround: 5s\nlisten: 127.0.0.1:1\n", encoding="utf-8")
    monkeypatch.setenv("TRIMTAB_ROUND", "7s")
    monkeypatch.setenv("TRIMTAB_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("TRIMTAB_STORE", "postgresql://me:geheim@db/trimtab")
    words = ("config", "show", "--config", str(file), "--listen", "127.0.0.1:3", "--no-dashboard")
    called = trimtab(*words, "--price", "a100=$3/h", "--json")
    told = json.loads(called.out)
    assert told["file"] == str(file)
    found = told["settings"]
    assert found["listen"] == {"value": "127.0.0.1:3", "from": "--listen"}
    assert found["round"] == {"value": 7.0, "from": "TRIMTAB_ROUND"}
    assert found["policy"] == {"value": "fifo", "from": f"{file}, line 1"}
    assert found["engine"] == {"value": "local://", "from": "default"}
    assert found["dashboard"]["value"] is False
    assert found["prices"] == {"value": ["a100=$3/h"], "from": "--price"}
    shown = trimtab(*words)
    assert "TRIMTAB_ROUND" in shown.out
    for output in (called.out, shown.out, shown.error):
        assert "geheim" not in output
    assert "postgresql://me:***@db/trimtab" in shown.out


def test_check_answers_with_a_sentence_and_a_status(trimtab: Trimtab, tmp_path: Path) -> None:
    file = tmp_path / "trimtab.yaml"
    file.write_text("policy: fifo\nengine: local://\n", encoding="utf-8")
    right = trimtab("config", "check", str(file))
    assert (right.status, right.out) == (0, f"{file} is right: it has 2 settings\n")
    file.write_text("policy: fifoo\n", encoding="utf-8")
    wrong = trimtab("config", "check", str(file))
    assert wrong.status == 2
    assert "fifoo" in wrong.error
    assert trimtab("config", "check", str(tmp_path / "none.yaml")).status == 2
