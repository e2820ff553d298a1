"""All cores kept busy by ordinary processes: some that only count, some that move memory."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_COUNTING = "while True: pass"
_MOVING = """
one, other = bytearray(64 << 20), bytearray(64 << 20)
while True:
    one[:] = other
    other[:] = one
"""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One of each kind for every core."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for code in [_COUNTING, _MOVING] * cores:
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
