"""A process of the bench's own that runs beside what is measured, and never outlives it."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trimtab.kernel import die_with_parent


@contextmanager
def beside(words: Sequence[str], **popen: Any) -> Iterator["subprocess.Popen[Any]"]:
    """It ends with the context, and with this process whatever ends that."""
    with subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **popen) as process:
        try:
            yield process
        finally:
            process.kill()
