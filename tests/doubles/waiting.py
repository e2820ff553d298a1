"""Waiting for a condition, for tests of processes and kernels: the test's own time limit is the only one."""

import time
from collections.abc import Callable


def until(holds: Callable[[], object]) -> None:
    """Return as soon as it holds."""
    while not holds():
        time.sleep(0.01)
