"""The command as a user calls it: arguments in; exit status and both outputs back."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from trimtab.cli import main
from trimtab.kernel import LimitedGroup, mounted

GROW = """
import time
kept = []
for _ in range(200):
    kept.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
    time.sleep({pause})
time.sleep(100)
"""


@dataclass(frozen=True)
class Called:
    status: int
    out: str
    error: str


@pytest.fixture
def trimtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Run the command in this process."""

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["trimtab", *arguments])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        captured = capsys.readouterr()
        return Called(status, captured.out, captured.err)

    return call


@pytest.fixture
def growing(new_group: Callable[..., LimitedGroup]) -> Iterator[Callable[[float], str]]:
    """Start a container in which something grows by a MiB every so many seconds; its path."""
    with ExitStack() as stack:

        def start(pause: float) -> str:
            hierarchy = mounted()
            group = new_group(version=1, below=hierarchy)
            child = subprocess.Popen(
                [sys.executable, "-S", "-c", GROW.format(pause=pause)],
                preexec_fn=lambda: group.add(os.getpid()),
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
            assert hierarchy is not None
            return f"/{group.folders['cpu'].relative_to(hierarchy.folders['cpu'])}"

        yield start
