"""The command as a user calls it: arguments in; exit status and both outputs back."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from trimtab.cli import main


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
