"""The listener inside the command: how it gets into its interpreters, its records, and the facts in them."""

import contextlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from trimtab.core import Layer, Model, Operators, Steps
from trimtab.kernel import Owner

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
STOPPING = "stopping"
_LISTENER = Path(__file__).with_name("listener")

Record = dict[str, Any]


class ListenerFolder:
    """A folder that listeners write into. Use as a context: leaving it removes the folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.gettempdir()) / Owner.current().name(secrets.token_hex(4))
        self.records: dict[str, list[Record]] = {}
        self._offsets: dict[str, int] = {}

    def __enter__(self) -> "ListenerFolder":
        sweep_folders()
        self.folder.mkdir(mode=0o700)
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def variables(self) -> dict[str, str]:
        """Environment variables with which the listener starts in the command's interpreters."""
        path = os.environ.get("PYTHONPATH")
        return {
            FOLDER_VARIABLE: str(self.folder),
            "PYTHONPATH": f"{_LISTENER}{os.pathsep}{path}" if path else str(_LISTENER),
        }

    def announce_stop(self) -> None:
        """Tell the listeners that an interrupt is Trimtab's doing and no reason for a traceback."""
        with contextlib.suppress(OSError):
            (self.folder / STOPPING).touch()

    def update(self) -> None:
        """Read what has been written since the last time, whole lines only."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path.name, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path.name] = self._offsets.get(path.name, 0) + len(whole)
            self.records.setdefault(path.name, []).extend(_parsed(whole))

    def steps(self) -> int:
        """Undisturbed steps seen so far, of the process that has made most."""
        return max((step_count(records) for records in self.records.values()), default=0)


def step_count(records: list[Record]) -> int:
    """Undisturbed steps in one process's records."""
    return sum(len(record["seconds"]) for record in records if record["record"] == "steps")


def sweep_folders() -> None:
    """Remove folders whose Trimtab was killed."""
    for path in Path(tempfile.gettempdir()).glob("trimtab-*"):
        owner = Owner.of(path.name)
        if owner is not None and owner.is_gone() and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _parsed(lines: bytes) -> Iterator[Record]:
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "record" in record:
            yield record


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    """Facts about a training script; `model` and `steps` are None where no training was seen."""

    model: Model | None
    steps: Steps | None
    notes: tuple[str, ...]
    learning_rate: float | None = None  # of the first optimizer's first group, early in the run


def read_facts(records_by_process: dict[str, list[Record]]) -> ListenerFacts:
    """Facts about the process that trained: the one with a model and most steps."""
    training = [r for r in records_by_process.values() if _last(r, "progress") or _last(r, "model")]
    if not training:
        notes = _notes([r for records in records_by_process.values() for r in records])
        return ListenerFacts(
            None, None, (*notes, "no PyTorch optimizer step was seen, so there are no facts of a model")
        )
    records = max(training, key=step_count)
    notes = _notes(records)
    model = _model(records)
    if model is None:
        return ListenerFacts(
            None, None, (*notes, "the command ended before its second training step was over")
        )
    if not model.operators:
        notes = (*notes, "the operators of a step were not seen; FLOP and bytes are missing")
    steps = _steps(records)
    if not steps.seconds:
        notes = (*notes, "no undisturbed training step was seen; profile for longer")
    return ListenerFacts(model, steps, notes, (_last(records, "model") or {}).get("learning_rate"))


def _last(records: list[Record], kind: str) -> Record | None:
    return next((r for r in reversed(records) if r["record"] == kind), None)


def _notes(records: list[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(r["text"] for r in records if r["record"] == "note"))


def _samples(records: list[Record]) -> int:
    """Samples in the traced step; 1 where neither the model's input nor the loader shows it."""
    calls, loader = _last(records, "calls") or {}, _last(records, "loader") or {}
    return int(calls.get("batch_size") or loader.get("batch_size") or 1)


def _model(records: list[Record]) -> Model | None:
    found = _last(records, "model")
    if found is None:
        return None
    calls, trace = _last(records, "calls") or {}, _last(records, "trace") or {}
    if not trace.get("complete"):
        trace = {}
    samples = _samples(records)
    flop = trace.get("flop", {})
    return Model(
        parameters=found["parameters"],
        parameter_bytes=float(found["parameter_bytes"]),
        buffer_bytes=float(found["buffer_bytes"]),
        modules=found["modules"],
        layers=tuple(Layer(*layer) for layer in found["layers"]),
        optimizer=found["optimizer"] or None,
        optimizer_state_bytes=float(found["optimizer_state_bytes"]),
        precision=trace.get("precision", "fp32"),
        forward_flop_per_sample=flop.get("forward", 0) / samples,
        step_flop_per_sample=sum(flop.values()) / samples,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=trace.get("saved_bytes", 0) / samples,
        input_shape=tuple(calls.get("input_shape", ())),
        output_shape=tuple(calls.get("output_shape", ())),
        input_bytes_per_sample=calls.get("input_bytes", 0) / samples,
        output_bytes_per_sample=calls.get("output_bytes", 0) / samples,
        operators=tuple(
            Operators(phase, kind, float(count), float(fixed), (read + written) / samples, written / samples)
            for phase, kind, count, fixed, read, written in sorted(trace.get("operators", ()))
        ),
    )


def _steps(records: list[Record]) -> Steps:
    timed = [r for r in records if r["record"] == "steps"]
    seconds = tuple(second for r in timed for second in r["seconds"])
    waits = [wait for r in timed for wait in r["waits"]]
    loader, trace, model = (_last(records, kind) or {} for kind in ("loader", "trace", "model"))
    arguments: Record = {}
    for record in records:
        if record["record"] == "arguments":
            arguments.update({name: value for name, value in record.items() if value is not None})
    peaks = [r["peak_device_memory"] for r in timed if r["peak_device_memory"] is not None]
    epochs, total = arguments.get("epochs"), arguments.get("total_steps")
    return Steps(
        seconds=seconds,
        batch_size=_samples(records),
        workers=model.get("world", 1),
        device=trace.get("device", "cuda" if peaks else "cpu"),
        input_wait=sum(waits) / len(waits) if waits else 0.0,
        busy=median(s - w for s, w in zip(seconds, waits, strict=True)) if seconds else None,
        loader_workers=loader.get("workers") or 0,
        dataset_length=loader.get("dataset_length"),
        epochs=None if epochs is None else float(epochs),
        total_steps=None if total is None else int(total),
        peak_device_memory=float(max(peaks)) if peaks else None,
    )
