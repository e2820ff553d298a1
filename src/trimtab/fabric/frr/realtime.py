"""Real-time priority for a process that has to answer within milliseconds, and a bound on what it takes."""

import contextlib
import os

from trimtab.core import TrimtabError

_PRIORITY = 5  # of 1 to 99
_MOST = "50000:100000"  # µs on a core without a pause: it is told to end after the first, ended after both

BOUNDED = ("prlimit", f"--rttime={_MOST}", "--")
"""Words before a command that let the kernel end it if it spins. No priority without them."""


class NotAllowedError(TrimtabError):
    """This process may not give real-time priority."""


def prefer(pid: int) -> None:
    """Let a process that was started as `BOUNDED` run before others."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError as error:
        raise NotAllowedError(
            f"bfdd runs without real-time priority ({(error.strerror or str(error)).lower()}), so a busy "
            f"machine may look like a dead link; allow it, or use longer BFD intervals"
        ) from None
