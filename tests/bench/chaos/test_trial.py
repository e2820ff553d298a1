"""The real system under faults; it needs root, PostgreSQL and a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from trimtab_bench import BenchOptions, run_bench
from trimtab_bench.chaos.plan import STORES
from trimtab_bench.chaos.report import _stores
from trimtab_bench.chaos.system import ShiftedClock, SmallDisk, c_compiler, unmount
from trimtab_bench.chaos.trial import _subset

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.kernel import mounted

MINUTES = 5.0
TIMES = """
import sqlite3, time
(seconds,) = sqlite3.connect(":memory:").execute("SELECT strftime('%s')").fetchone()
print(time.time(), time.monotonic(), seconds)
"""


@pytest.fixture
def _machine() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    try:
        c_compiler()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    hierarchy = mounted()
    if hierarchy is None or hierarchy.version != 1:
        pytest.skip("needs control groups of version 1")


def test_a_wrong_store_is_refused_by_name() -> None:
    with pytest.raises(BadInputError, match="postgres"):
        _stores("postgres")


def test_every_subset_but_the_empty_one_can_be_chosen() -> None:
    chosen = {tuple(_subset([1, 2, 3], number / 70)) for number in range(70)}
    assert len(chosen) == 7
    assert () not in chosen


@pytest.mark.usefixtures("_machine")
def test_a_full_disk_takes_no_byte_until_it_is_released(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    try:
        disk.fill()
        with pytest.raises(OSError, match="space"):
            (disk.folder / "file").write_bytes(bytes(8192))
        disk.release()
        (disk.folder / "file").write_bytes(bytes(8192))
    finally:
        unmount(disk.folder)


@pytest.mark.usefixtures("_machine")
def test_a_shifted_clock_changes_the_wall_clock_alone(tmp_path: Path) -> None:
    clock = ShiftedClock(tmp_path)
    clock.shift(86_400)
    words = [sys.executable, "-c", TIMES]
    shifted, true = (
        [float(word) for word in subprocess.check_output(words, env={**os.environ, **more}).split()]
        for more in (clock.environment, {})
    )
    assert abs(shifted[0] - true[0] - 86_400.0) < 60.0
    assert abs(shifted[1] - true[1]) < 60.0
    assert abs(shifted[2] - true[2] - 86_400.0) < 60.0


@pytest.mark.second_tier
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_or_doubled_under_faults(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store == "postgresql" and not [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]:
        pytest.skip("needs Debian's postgresql package")
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    before = {process.pid for process in psutil.process_iter()}
    result = run_bench("chaos", BenchOptions(minutes=MINUTES, store=store, quiet=True))
    assert not result.failure
    assert result.figures["acknowledged"] == result.figures["ended"] > 0
    assert result.figures["faults"] >= 10 * MINUTES
    new = (process for process in psutil.process_iter(["cmdline"]) if process.pid not in before)
    # A zombie has no command line (None) any more.
    assert not [process for process in new if str(tmp_path) in " ".join(process.info["cmdline"] or ())]
