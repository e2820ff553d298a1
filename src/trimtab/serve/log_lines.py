"""What the system says while it runs, line by line: for people, or as objects for programs."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from trimtab.serve.settings import Settings


@contextmanager
def shown_log(settings: Settings) -> Iterator[None]:
    """Show it while the block runs, as it was asked for."""
    log, handler = logging.getLogger("trimtab"), _Shown(as_objects=settings.log_format == "json")
    log.addHandler(handler)
    log.setLevel(settings.log_level.upper())
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Shown(logging.Handler):
    """Prints without Rich, which takes thirty times as long, and every write to the API has a line."""

    def __init__(self, as_objects: bool) -> None:
        super().__init__()
        self._as_objects = as_objects

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if record.exc_info:
            said += "\n" + logging.Formatter().formatException(record.exc_info)
        if self._as_objects:
            told = {"time": record.created, "level": record.levelname.lower(), "logger": record.name}
            line = json.dumps({**told, "message": said})
        else:
            line = f"{time.strftime('%H:%M:%S')} {said}"
        print(line, file=sys.stderr, flush=True)
