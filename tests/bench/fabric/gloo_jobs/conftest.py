"""A small job for the tests of what runs jobs."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trimtab_bench.fabric.gloo_jobs import GlooJob

COUNTING = Path(__file__).with_name("counting.py")


@pytest.fixture
def counting(tmp_path: Path) -> Callable[..., GlooJob]:
    """The job that counts, with options of its own, and with a checkpoint every two steps if asked for."""

    def make(*options: object, keep: bool = False) -> GlooJob:
        words = (sys.executable, str(COUNTING), *map(str, options))
        return GlooJob(words, checkpoint=tmp_path / "kept" if keep else None, every=2)

    return make
