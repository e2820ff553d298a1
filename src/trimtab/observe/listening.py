"""The listener inside the command: its environment variables, its records, and the facts in them."""

import contextlib
import importlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from trimtab.core import BadInputError, Layer, Model, OperatorCall, Operators, Steps
from trimtab.kernel import Owner

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
STOPPING = "stopping"
_FAKE_VARIABLE = "TRIMTAB_FAKE"
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

    def variables(self, fake: bool = False) -> dict[str, str]:
        """Environment variables with which the listener starts in the command's interpreters."""
        path = os.environ.get("PYTHONPATH")
        return {
            FOLDER_VARIABLE: str(self.folder),
            **({_FAKE_VARIABLE: "1"} if fake else {}),
            "PYTHONPATH": f"{_LISTENER}{os.pathsep}{path}" if path else str(_LISTENER),
        }

    def announce_stop(self) -> None:
        """Announce that Trimtab will interrupt the command, so that listeners print no traceback."""
        with contextlib.suppress(OSError):
            (self.folder / STOPPING).touch()

    def update(self) -> None:
        """Read lines that were written since the last call."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path.name, 0))
                text = file.read()
            lines = text[: text.rfind(b"\n") + 1]
            self._offsets[path.name] = self._offsets.get(path.name, 0) + len(lines)
            self.records.setdefault(path.name, []).extend(_parsed(lines))

    def steps(self) -> int:
        """Undisturbed steps so far, of the process with most."""
        return max((step_count(records) for records in self.records.values()), default=0)

    def timed_seconds(self) -> float:
        """Seconds of all undisturbed steps so far, of the process with most."""
        return max(
            (sum(sum(r["seconds"]) for r in _all(records, "steps")) for records in self.records.values()),
            default=0.0,
        )

    def has_trace(self, device: str | None = None) -> bool:
        """Whether the operators of a step were traced, on this kind of device."""
        traces = [r for records in self.records.values() for r in _all(records, "trace")]
        return any(device in (None, trace["device"]) for trace in traces)

    def waits_for(self) -> str | None:
        """The next event in the script that the profile needs; None before PyTorch is imported."""
        return waits_for(self.records)


def waits_for(records_by_process: dict[str, list[Record]]) -> str | None:
    """The next event in a script that a profile needs; None before PyTorch is imported."""
    everything = [r for records in records_by_process.values() for r in records]
    if _all(everything, "progress"):
        return "undisturbed steps"
    stages = [record["text"] for record in _all(everything, "stage")]
    order = ("the first optimizer step", "the model's first call", "an optimizer")
    return next((stage for stage in order if stage in stages), None)


def _all(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["record"] == kind]


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
class FakeStop:
    """The line at which a fake run failed; `needs_value` if it asked for a number that fake tensors lack.

    `file` is empty if the model of `--model` cannot be built.
    """

    file: str
    line: int
    code: str
    error: str
    needs_value: bool


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    """Facts about a training script; `model` and `steps` are None where no training was recorded."""

    model: Model | None
    steps: Steps | None
    notes: tuple[str, ...]
    learning_rate: float | None = None  # of the first optimizer's first group, early in the run


def fake_stop(records_by_process: dict[str, list[Record]]) -> FakeStop | None:
    """Where a fake run failed, if it did."""
    stops = [r for records in records_by_process.values() for r in _all(records, "fake_stop")]
    fields = ("file", "line", "code", "error", "needs_value")
    return FakeStop(**{name: stops[0][name] for name in fields}) if stops else None


def trace_model(build: Callable[[], Any], *inputs: str, optimizer: str | None = "AdamW") -> Model:
    """Facts about the model that `build` makes, by one step with fake tensors in this process.

    `inputs` are shapes like "8x2048:int64" for the arguments of its call. Without an optimizer the step is
    inference. Needs PyTorch.
    """
    single: Any = importlib.import_module("trimtab.observe.listener.trimtab_listener.single")
    records: list[Record] = single.trace_single_step(build, inputs, optimizer)
    model = _model(records)
    if model is None or not model.operators:
        raise BadInputError(
            f"the model could not be traced: {'; '.join(_notes(records)) or 'it made no step'}"
        )
    return model


def read_facts(records_by_process: dict[str, list[Record]]) -> ListenerFacts:
    """Facts about the process that trained: the one with a model and most steps."""
    training = [r for r in records_by_process.values() if _last(r, "progress") or _last(r, "model")]
    if not training:
        notes = _notes([r for records in records_by_process.values() for r in records])
        return ListenerFacts(None, None, (*notes, _no_step(waits_for(records_by_process))))
    records = max(training, key=step_count)
    notes = _notes(records)
    model = _model(records)
    if model is None:
        return ListenerFacts(
            None, None, (*notes, "the command ended before its first training step was over")
        )
    if not model.operators:
        notes = (*notes, "the operators of a step were not traced; FLOP and bytes are missing")
    steps = _steps(records, _loads(records_by_process))
    if steps.device == "meta":
        notes = (
            *notes,
            "the model had no numbers (fake tensors or the meta device), so there are no step times",
        )
    elif not steps.seconds:
        notes = (*notes, "there was no undisturbed training step; profile for longer")
    return ListenerFacts(model, steps, notes, (_last(records, "model") or {}).get("learning_rate"))


def _no_step(waited_for: str | None) -> str:
    """A sentence about a script that took no optimizer step, with the event that it lacked."""
    problem = "there was no PyTorch optimizer step, so nothing is known about a model"
    if waited_for is None:
        return f"{problem}; no Python of the command imported PyTorch"
    reached = {
        "an optimizer": "PyTorch was imported, but no optimizer of torch.optim was made",
        "the model's first call": "an optimizer was made, but no module with its parameters was called in"
        " training mode",
        "the first optimizer step": "the model was called, but optimizer.step() did not return",
    }
    return f"{problem}; {reached.get(waited_for, 'it ended early')}; profile it for longer with --for"


def _last(records: list[Record], kind: str) -> Record | None:
    return next((r for r in reversed(records) if r["record"] == kind), None)


def _notes(records: list[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(r["text"] for r in records if r["record"] == "note"))


def _samples(records: list[Record]) -> int:
    """Samples in the traced step; 1 where neither the model's input nor the loader shows it."""
    calls, loader = _last(records, "calls") or {}, _last(records, "loader") or {}
    return int(calls.get("batch_size") or loader.get("batch_size") or 1)


def _model(records: list[Record]) -> Model | None:
    facts = _last(records, "model")
    if facts is None:
        return None
    calls, trace = _last(records, "calls") or {}, _last(records, "trace") or {}
    if not trace.get("complete"):
        trace = {}
    samples = _samples(records)
    flop = trace.get("flop", {})
    return Model(
        parameters=facts["parameters"],
        parameter_bytes=float(facts["parameter_bytes"]),
        buffer_bytes=float(facts["buffer_bytes"]),
        modules=facts["modules"],
        layers=tuple(Layer(*layer) for layer in facts["layers"]),
        optimizer=facts["optimizer"] or None,
        optimizer_state_bytes=float(facts["optimizer_state_bytes"]),
        precision=trace.get("precision", "fp32"),
        forward_flop_per_sample=flop.get("forward", 0) / samples,
        step_flop_per_sample=sum(flop.values()) / samples,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=trace.get("saved_bytes", 0) / samples,
        input_shape=tuple(calls.get("input_shape", ())),
        output_shape=tuple(calls.get("output_shape", ())),
        input_bytes_per_sample=calls.get("input_bytes", 0) / samples,
        output_bytes_per_sample=calls.get("output_bytes", 0) / samples,
        calls=tuple(OperatorCall(**row) for row in trace.get("rows", ())),
        traced_batch=samples,
        micro_batches=max(1, calls.get("micro_batches", 1)),
        peak_live_bytes=float(trace.get("peak_live_bytes", 0)),
        trained_parameters=facts.get("trained_parameters", 0),
        operators=tuple(
            Operators(phase, kind, float(count), float(fixed), (read + written) / samples, written / samples)
            for phase, kind, count, fixed, read, written in sorted(trace.get("operators", ()))
        ),
    )


def _steps(records: list[Record], loads: tuple[int, float]) -> Steps:
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
    device = trace.get("device", "cuda" if peaks else "cpu")
    if device == "meta":  # nothing was computed, so nothing was timed
        seconds, waits = (), []
    fetches, fetching = loads
    return Steps(
        seconds=seconds,
        batch_size=_samples(records),
        workers=model.get("world", 1),
        device=device,
        input_wait=sum(waits) / len(waits) if waits else 0.0,
        busy=median(s - w for s, w in zip(seconds, waits, strict=True)) if seconds else None,
        loader_workers=loader.get("workers") or 0,
        dataset_length=loader.get("dataset_length"),
        epochs=None if epochs is None else float(epochs),
        total_steps=None if total is None else int(total),
        peak_device_memory=float(max(peaks)) if peaks else None,
        load_seconds=fetching / fetches if fetches else None,
        loaded_samples=loader.get("batch_size") or None if fetches else None,
    )


def _loads(records_by_process: dict[str, list[Record]]) -> tuple[int, float]:
    """Batches that loaders have made, in the script and in their workers, and the seconds it took."""
    last = [fetched for records in records_by_process.values() if (fetched := _last(records, "fetched"))]
    return sum(fetched["batches"] for fetched in last), sum(fetched["seconds"] for fetched in last)
