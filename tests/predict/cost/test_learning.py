"""The corrections that ship: they beat the rule in their own backtest, and damaged ones are refused."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from trimtab.catalog import accelerator
from trimtab.core import BadInputError
from trimtab.predict import (
    MeasuredStep,
    corrections_data,
    learn_corrections,
    leave_one_model_out,
    shipped_corrections,
)
from trimtab.predict.cost.correction import parse_corrections

H200 = accelerator("H200")


def test_what_ships_beat_the_rule_on_models_left_out() -> None:
    result = shipped_corrections()
    assert result is not None
    test = result.backtest
    assert test.memory < test.memory_rule
    assert test.time_rule > test.time[1] > test.time[2] > test.time[3]
    assert test.time_with(1) == test.time[1]
    assert test.time_with(9) == test.time[3]
    assert result.models == 28


def test_what_is_learned_is_kept_and_read_back(measured: list[MeasuredStep]) -> None:
    few = [
        s for s in measured if s.device != "cpu" and s.name in ("resnet18", "resnet50", "vgg16", "alexnet")
    ]
    seconds, peaks = leave_one_model_out(few, H200)
    names = list(dict.fromkeys(s.name for s in few))
    without = dict.fromkeys(names, (seconds, peaks))
    data = corrections_data(learn_corrections(few, H200, (seconds, peaks), without))
    back = parse_corrections(json.loads(json.dumps(data)), "H200")
    assert corrections_data(back) == data


def _without_points(data: dict[str, Any]) -> None:
    del data["memory"]["points"]


def _one_weight_less(data: dict[str, Any]) -> None:
    data["memory"]["weights"].pop()


def _not_a_number(data: dict[str, Any]) -> None:
    data["memory"]["weights"][0] = float("nan")


def _negative_variance(data: dict[str, Any]) -> None:
    data["spread"]["total"] = -1.0


def _another_version(data: dict[str, Any]) -> None:
    data["spread"]["mood"] = 1.0


def _no_backtest(data: dict[str, Any]) -> None:
    data["backtest"] = None


@pytest.mark.parametrize(
    "damage",
    [_without_points, _one_weight_less, _not_a_number, _negative_variance, _another_version, _no_backtest],
)
def test_damaged_corrections_are_refused_in_one_sentence(damage: Callable[[dict[str, Any]], None]) -> None:
    data = copy.deepcopy(dict(H200.constants["corrections"]))
    damage(data)
    with pytest.raises(BadInputError, match="H200"):
        parse_corrections(data, "H200")
