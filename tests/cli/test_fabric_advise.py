"""`trimtab fabric advise`, as a user calls it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Trimtab = Callable[..., Any]


def test_advice_says_how_often_to_save_and_what_is_saved(trimtab: Trimtab) -> None:
    said = trimtab("fabric", "advise", "16000")
    assert said.status == 0, said.error
    for words in ("between checkpoints", "by Young's rule, by Daly's", "saved: $", "offers of H100"):
        assert words in said.out
    assert "best would be" not in said.out
    kept = json.loads(trimtab("decisions", "--json").out)[0]
    assert f"decision {kept['id']}" in said.out
    assert kept["rule"]["who"] == "no fabric, Young's interval"
    shown = trimtab("decisions", kept["id"]).out
    for words in (
        "fabric for a job on 16000 devices",
        "fabric=True",
        "work done twice",
        "rule         no fab",
    ):
        assert words in shown


def test_json_holds_the_same_with_ranges_and_reasons(trimtab: Trimtab) -> None:
    costs = ("--saving", "20s..45s", "--noticing", "1m", "--restarting", "2m", "--price", "$2.50/h")
    counted = (
        "--interruptions",
        "12",
        "--counted-for",
        "30d",
        "--counted-on",
        "512",
        "--network-share",
        "0.25",
    )
    said = trimtab("fabric", "advise", "1024", *costs, *counted, "--interval", "30m", "--json")
    assert said.status == 0, said.error
    advice = json.loads(said.out)
    assert json.loads(trimtab("decisions", advice["decision"], "--json").out)["decision"]["kind"] == "fabric"
    assert advice["question"]["saving"] == {"value": 30.0, "low": 20.0, "high": 45.0, "reason": "given"}
    assert advice["question"]["failures"]["network_share"] == 0.25
    assert advice["without"]["interval"]["used"] == 1800.0
    assert advice["without"]["between"]["value"] == pytest.approx(30 * 86400 / 12 / 2)
    saved = advice["saved_dollars"]
    assert saved["low"] < saved["value"] < saved["high"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("0",), "devices is 0"),
        (("64", "--price", "cheap"), '"cheap"'),
        (("64", "--saving", "1m..30s"), "from the smaller to the larger: 30s..1m"),
        (("64", "--survived", "most"), '"most"'),
        (("64", "--interruptions", "3"), "--counted-for"),
        (("16000", "--interval", "5h"), "2h47m"),
        (("64", "--device", "H1000"), '"H1000"'),
    ],
)
def test_nonsense_is_refused_in_one_sentence(
    trimtab: Trimtab, arguments: tuple[str, ...], sentence: str
) -> None:
    said = trimtab("fabric", "advise", *arguments)
    assert said.status == 2
    assert sentence in said.error
    assert said.error.count("\n") == 1
