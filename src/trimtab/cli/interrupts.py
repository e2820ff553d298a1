"""Commands that run workers end in order when they are asked to end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from trimtab.cli.warning import warn


@contextmanager
def ending_in_order(kept: str) -> Iterator[None]:
    """SIGTERM ends like Ctrl-C: what was begun is cleaned up, and `kept` tells what is not lost."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {kept}")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
