"""The front door."""

import subprocess
import sys

import pytest

from trimtab.predict import fewshot


def test_everything_named_at_the_door_is_there() -> None:
    for name in fewshot.__all__:
        assert getattr(fewshot, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'backroom'"):
        _ = fewshot.backroom


def test_nothing_heavy_is_loaded_at_the_door_nor_lightgbm_before_a_tree_grows() -> None:
    code = (
        "import sys, trimtab.predict.fewshot as f; print('numpy' in sys.modules);"
        "f.Trees, f.RULES, f.backtest; print('lightgbm' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]
