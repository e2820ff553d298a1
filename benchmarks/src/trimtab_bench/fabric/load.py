"""All cores kept busy by ordinary processes: some that only count, some that move memory."""

import contextlib
import os
import sys
from collections.abc import Iterator

from trimtab_bench.fabric.beside import beside

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
            stack.enter_context(beside([sys.executable, "-I", "-S", "-c", code]))
        yield
