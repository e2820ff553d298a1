"""Forked processes of a lane: they die with it, and a signal to end the lane is not lost in between."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from trimtab.kernel import die_with_parent


@contextlib.contextmanager
def child(live: Callable[[], object]) -> Iterator[int]:
    """A process that does what `live` does and then ends; its pid. It is killed with the context."""
    pid = _fork(live)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(live: Callable[[], object]) -> int:
    # Python runs callbacks at a fork and ignores what is raised in them: not the moment for an exit.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                die_with_parent(signal.SIGKILL)
                live()
            finally:
                os._exit(0)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
