"""The front door."""

import subprocess
import sys

import pytest

from trimtab.predict.jobs import training


def test_everything_named_at_the_door_is_there() -> None:
    for name in training.__all__:
        assert getattr(training, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'backroom'"):
        _ = training.backroom


def test_nothing_heavy_is_loaded_at_the_door_nor_torch_before_a_network_learns() -> None:
    code = (
        "import sys, trimtab.predict.jobs.training as t; print('numpy' in sys.modules);"
        "t.ThesisNetwork, t.BASELINES, t.Ours;"
        "print({'torch', 'sklearn', 'lightgbm', 'scipy'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split("\n")[:2] == ["False", "set()"]
