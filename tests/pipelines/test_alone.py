"""What a stage would have used with the machine to itself."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from trimtab.core import Host, Profile
from trimtab.kernel import thread_waits
from trimtab.pipelines.alone import Alone, waiting

BUSY = [sys.executable, "-S", "-c", "while True: pass"]


def on_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def test_what_is_resident_counts_where_less_was_charged(used: Callable[..., Profile]) -> None:
    with subprocess.Popen(["sleep", "60"]) as before:
        alone = Alone()
        alone.look()
        with subprocess.Popen(["sleep", "60"]) as since:
            alone.look()
            alone.look()
            since.kill()
        before.kill()
    seen = alone.corrected(used([1.0] * 4, [0.0, 0.0, 2.0**40, 7.0])).series
    assert seen.memory[0] == 0.0, "a process from before is not the stage's"
    assert 0 < seen.memory[1] < 2**26
    assert seen.memory[2:] == (2.0**40, 7.0)


def test_waiting_for_a_core_counts_as_use(used: Callable[..., Profile]) -> None:
    with subprocess.Popen(BUSY, preexec_fn=on_one_core) as rival:
        alone = Alone()
        with subprocess.Popen(BUSY, preexec_fn=on_one_core) as stage:
            deadline = time.monotonic() + 30
            while sum(thread_waits(stage.pid).values()) < 0.3 and time.monotonic() < deadline:
                time.sleep(0.02)
            alone.look()
            stage.kill()
        rival.kill()
    profile = replace(used([0.3] * 20, [1.0] * 20), host=Host("a CPU", 0.32, 1e9), window=0.5)
    seen = alone.corrected(profile)
    assert 0.3 < seen.series.cpu[0] <= 0.32, "never more than there is"
    assert seen.series.cpu[-1] == 0.3, "where it did not wait, what it used"
    assert "waited for a free core" in waiting(seen)
    assert waiting(profile) == ""
