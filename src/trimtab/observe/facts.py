"""From what the listener wrote to the vocabulary: the model, the steps, and notes on what was not seen."""

from dataclasses import dataclass
from statistics import median

from trimtab.core import Layer, Model, Operators, Steps
from trimtab.observe.listening import Record, step_count


@dataclass(frozen=True, slots=True)
class Facts:
    """What the listener saw of a training script; `model` and `steps` are None when there was none."""

    model: Model | None
    steps: Steps | None
    notes: tuple[str, ...]
    learning_rate: float | None = None  # of the first optimizer's first group, early in the run


def read_facts(records_by_process: dict[str, list[Record]]) -> Facts:
    """Facts about the process that trained: the one with a model and most steps."""
    training = [r for r in records_by_process.values() if _last(r, "progress") or _last(r, "model")]
    if not training:
        notes = _notes([r for records in records_by_process.values() for r in records])
        return Facts(
            None, None, (*notes, "no PyTorch optimizer step was seen, so there are no facts of a model")
        )
    records = max(training, key=step_count)
    notes = _notes(records)
    model = _model(records)
    if model is None:
        return Facts(None, None, (*notes, "the command ended before its second training step was over"))
    if not model.operators:
        notes = (*notes, "the operators of a step were not seen; FLOP and bytes are missing")
    steps = _steps(records)
    if not steps.seconds:
        notes = (*notes, "no undisturbed training step was seen; profile for longer")
    return Facts(model, steps, notes, (_last(records, "model") or {}).get("learning_rate"))


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
