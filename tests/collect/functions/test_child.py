"""Children that end with their context, and with whoever made them."""

import os
import signal
import subprocess
import sys
import time

from trimtab.collect.functions.child import child
from trimtab.kernel import read_process

ORPHAN = """
import os, signal, time
from trimtab.collect.functions.child import child
with child(lambda: time.sleep(60)) as pid:
    print(pid, flush=True)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_ends_with_its_context() -> None:
    with child(lambda: time.sleep(60)) as pid:
        assert read_process(pid) is not None
    assert read_process(pid) is None


def test_a_child_that_fails_ends_quietly_and_does_not_return_here() -> None:
    me = os.getpid()
    with child(lambda: 1 / 0) as pid:
        while (found := read_process(pid)) is not None and not found.zombie:
            time.sleep(0.01)
        assert os.getpid() == me


def test_a_child_dies_with_a_killed_parent() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while (found := read_process(int(done.stdout))) is not None and not found.zombie:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_signal_to_end_is_not_blocked_afterwards() -> None:
    with child(lambda: time.sleep(60)) as pid:
        time.sleep(0.1)
        os.kill(pid, signal.SIGTERM)
        while (found := read_process(pid)) is not None and not found.zombie:
            time.sleep(0.01)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
