"""Changes to PyTorch at its import: compiled functions run eagerly, and a fake run begins."""

from __future__ import annotations

import sys
from typing import Any

from .record import ListenerRecorder


def run_eagerly(recorder: ListenerRecorder, fake: Any = None) -> None:
    """Let `torch.compile` compile nothing: operators inside compiled code cannot be traced.

    Modules stay wrapped as the script expects. Eager and compiled steps do the same work.
    """
    torch: Any = sys.modules["torch"]
    recorder.write("stage", text="an optimizer")
    if fake is not None:
        fake.begin()
    original = getattr(torch, "compile", None)
    if original is None:
        return

    def compile(*args: Any, **kwargs: Any) -> Any:
        if hasattr(torch.compiler, "set_stance"):
            torch.compiler.set_stance("force_eager")
        else:
            kwargs["disable"] = True
        recorder.note(
            "torch.compile was switched off for this run, because compiled code cannot be traced; step times"
            " are those of eager PyTorch"
        )
        return original(*args, **kwargs)

    torch.compile = compile
