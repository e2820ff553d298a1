"""The listener's output: one file of JSON lines per process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any


class ListenerRecorder:
    """Writes records into `folder`. The file appears with the first one, so silent processes leave none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._handle = -1
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._start_over)

    def write(self, record: str, **fields: Any) -> None:
        """Append one record with one `write` call."""
        if self._handle < 0:
            path = os.path.join(self._folder, f"{self._pid}.jsonl")
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.write(
                "process", pid=self._pid, argv=list(getattr(sys, "argv", ())), python=sys.version.split()[0]
            )
        os.write(self._handle, (json.dumps({"record": record, **fields}) + "\n").encode())

    def note(self, text: str) -> None:
        """Record what could not be measured, and why; errors are ignored."""
        with contextlib.suppress(Exception):
            self.write("note", text=text)

    def _start_over(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle = -1
        self._pid = os.getpid()
