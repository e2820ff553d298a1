"""An agent's snapshot: how old it is, whatever the wall clock does."""

import json
import time
from pathlib import Path

import pytest

from trimtab.core import NotFoundError
from trimtab.resize import PoolStatus, read_status, write_status
from trimtab.resize.status import STALE

DAY = 86400.0  # s


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_status(PoolStatus(time.time(), 0, {}, ()), tmp_path / "agent.json")
    return tmp_path / "agent.json"


@pytest.mark.parametrize("jump", [-DAY, 0.0, DAY])
def test_a_new_snapshot_is_read_whatever_the_wall_clock_says(file: Path, jump: float) -> None:
    assert read_status(time.time() + jump, file).late == 0


@pytest.mark.parametrize("jump", [-DAY, 0.0, DAY])
def test_an_old_snapshot_is_refused_whatever_the_wall_clock_says(file: Path, jump: float) -> None:
    _change(file, monotonic=time.monotonic() - STALE - 1)
    with pytest.raises(NotFoundError):
        read_status(time.time() + jump, file)


def test_after_a_boot_the_wall_clock_decides(file: Path) -> None:
    _change(file, boot="another", monotonic=time.monotonic() + DAY)
    assert read_status(time.time(), file).late == 0
    with pytest.raises(NotFoundError):
        read_status(time.time() + STALE + 1, file)


def _change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
