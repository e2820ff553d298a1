"""The ledger as a user reads it, and how an outcome judges a decision."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import Profile
from trimtab.observe import save_profile

Trimtab = Callable[..., Any]


@pytest.fixture
def decided(trimtab: Trimtab, make_profile: Callable[..., Profile], tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "profile.json"
    save_profile(make_profile(), path)
    answer: dict[str, Any] = json.loads(trimtab("recommend", str(path), "--json").out)
    return answer


def test_an_empty_ledger_says_how_to_fill_it(trimtab: Trimtab) -> None:
    assert "trimtab recommend" in trimtab("decisions").out


def test_the_list_shows_the_decision_and_one_shows_it_whole(
    trimtab: Trimtab, decided: dict[str, Any]
) -> None:
    instance = decided["rows"][0]["configuration"]["offer"]["instance"]
    assert decided["decision"] in trimtab("decisions").out
    assert trimtab("decisions", "ls").out == trimtab("decisions").out
    shown = trimtab("decisions", decided["decision"][:6]).out
    for part in (
        instance,
        "chosen by    rule:analytic",
        "rule         rule:analytic: ",
        "model        model:corrected: ",
        "the rule answers",
        "alternatives",
        "launching operators",
    ):
        assert part in shown


def test_an_outcome_within_the_range_says_so_and_how_far_off(
    trimtab: Trimtab, decided: dict[str, Any]
) -> None:
    time = decided["rows"][0]["time"]
    called = trimtab("outcome", decided["decision"][:8], "--time", f"{time['value'] / 1.1}s")
    assert called.status == 0
    assert re.search(r"10% too high, within", called.out)
    listed = trimtab("decisions").out
    assert re.search(r"time \+10%", listed)
    assert "too high, within" in trimtab("decisions", decided["decision"]).out


def test_an_outcome_outside_the_range_says_so(trimtab: Trimtab, decided: dict[str, Any]) -> None:
    cost = decided["rows"][0]["cost"]["high"] * 10
    called = trimtab("outcome", decided["decision"], "--cost", f"{cost:.4f}", "--note", "slow disk")
    assert re.search(r"too low, outside", called.out)
    assert "slow disk" in trimtab("decisions", decided["decision"]).out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nosuch", "--time", "1h"], "nosuch"),
        (["ID"], "--time"),
        (["ID", "--time", "0"], "--time is 0"),
        (["ID", "--time", "-3h"], '"-3h"'),
        (["ID", "--cost", "free"], '"free"'),
    ],
)
def test_a_bad_outcome_is_refused_and_not_recorded(
    trimtab: Trimtab, decided: dict[str, Any], arguments: list[str], part: str
) -> None:
    called = trimtab("outcome", *(a.replace("ID", decided["decision"]) for a in arguments))
    assert called.status == 2
    assert part in called.error
    assert "not yet" in trimtab("decisions", decided["decision"]).out
