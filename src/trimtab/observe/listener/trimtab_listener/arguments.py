"""How long the whole job would be, where the script's own command line says so."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from .record import Recorder

_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "nb_epochs", "epoch")
_STEPS = (
    "max_steps",
    "total_steps",
    "num_steps",
    "n_steps",
    "train_steps",
    "max_iters",
    "num_iters",
    "iters",
)


def listen(recorder: Recorder) -> None:
    """Look at what every `ArgumentParser` parses; `parse_args` goes through `parse_known_args` too."""
    original = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            _record(recorder, result[0])
        return result

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def _record(recorder: Recorder, namespace: Any) -> None:
    epochs, steps = _first(namespace, _EPOCHS), _first(namespace, _STEPS)
    if epochs is not None or steps is not None:
        recorder.write("arguments", epochs=epochs, total_steps=steps)


def _first(namespace: Any, names: tuple[str, ...]) -> float | None:
    for name in names:
        value = getattr(namespace, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return value
    return None
