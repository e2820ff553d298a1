"""A script that Trimtab interrupts at the end of the window did nothing wrong: no traceback for that."""

from __future__ import annotations

import os
import sys
from types import TracebackType


def end_quietly(stopping: str) -> None:
    """Print nothing for an uncaught interrupt once the file `stopping` exists."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        # torchrun turns the signals it gets into a SignalException of its own.
        interrupt = issubclass(kind, KeyboardInterrupt) or kind.__name__ == "SignalException"
        if not (interrupt and os.path.exists(stopping)):
            previous(kind, value, trace)

    sys.excepthook = hook
