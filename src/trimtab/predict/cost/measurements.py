"""Measured steps of known models, and measured parts (stages) of models.

Steps are a folder of two files: measurements, and facts about the models.

`steps.csv`: model, batch, precision (fp32 is tf32 on a GPU, or bf16), mode (train, infer), device (cuda,
cpu), step_ms, peak_mem_mb, param_bytes, flops_fwd, flops_step, modules, status (ok, oom).
`ops.csv`: model, batch (two of them), phase, kind, count, bytes_in, bytes_out of one traced training step;
kind `saved` holds the bytes kept for the backward pass.
Stages are one file `stages.csv`: seconds of both passes of a part of a model, and its operations by kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError, Model, Operators
from trimtab.predict.cost.demand import TRAINING_FLOP_PER_FORWARD_FLOP, Operations
from trimtab.predict.tables import Array, read_table

BUNDLED_STEPS = Path(str(files("trimtab.predict") / "data" / "gpu-steps"))
"""Measured steps that the shipped constants were fitted to."""
BUNDLED_STAGES = Path(str(files("trimtab.predict") / "data" / "gpu-stages"))
"""Measured parts of models that the shipped constants were fitted to."""

_STEP_COLUMNS = (
    "model", "batch", "precision", "mode", "device", "step_ms", "peak_mem_mb", "params", "param_bytes",
    "flops_fwd", "flops_step", "modules", "status",
)  # fmt: skip
_OPERATOR_COLUMNS = ("model", "batch", "phase", "kind", "count", "bytes_in", "bytes_out")
_STAGE_COLUMNS = ("model", "precision", "samples", "forward_ms", "backward_ms")
_Row = Mapping[str, str]

# A softmax over attention scores exists in the CPU trace, with its mask and dropout, but fused attention on a
# GPU keeps none of it: this many times the softmax's result is missing from what is saved there.
_FUSED_ATTENTION_SAVES = 2.7


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One row. `seconds` and `peak_memory` are None where the step ran out of memory."""

    model: Model
    name: str
    batch: int
    precision: str
    training: bool
    device: str
    seconds: float | None
    peak_memory: float | None

    @property
    def out_of_memory(self) -> bool:
        return self.seconds is None


def read_measurements(folder: Path) -> list[MeasuredStep]:
    """All rows of a folder, or of its subfolder `gpu-steps`; models missing in `ops.csv` are skipped."""
    if not (folder / "steps.csv").is_file() and (folder / "gpu-steps" / "steps.csv").is_file():
        folder = folder / "gpu-steps"
    hint = "; give a folder with steps.csv and ops.csv"
    steps = read_table(folder / "steps.csv", _STEP_COLUMNS, hint).rows()
    by_model: dict[str, list[_Row]] = {}
    for _, row in read_table(folder / "ops.csv", _OPERATOR_COLUMNS, hint).rows():
        by_model.setdefault(row["model"], []).append(row)
    # Only a training row shows the FLOP of a complete step, so the first of these describes the model.
    training_first = sorted(steps, key=lambda step: step[1]["mode"] != "train")
    describing: dict[str, _Row] = {}
    for _, row in training_first:
        describing.setdefault(row["model"], row)
    models: dict[str, Model] = {}
    measured = []
    for line, row in steps:
        name = row["model"]
        if name not in by_model:
            continue
        try:
            if name not in models:
                models[name] = _model(describing[name], by_model[name])
            measured.append(_measured_step(row, models[name]))
        except (ValueError, TypeError, ZeroDivisionError) as error:
            raise BadInputError(f"{folder / 'steps.csv'}, line {line}: {error}") from None
    if not measured:
        raise BadInputError(f"{folder} has no measured step whose model is described in ops.csv")
    return measured


def _measured_step(row: _Row, model: Model) -> MeasuredStep:
    ok, gpu = row["status"] == "ok", row["device"] != "cpu"
    if ok and not 0 < float(row["step_ms"]) < math.inf:
        raise ValueError(f"a step of {row['step_ms']} ms is not a measurement")
    return MeasuredStep(
        model=model,
        name=row["model"],
        batch=int(row["batch"]),
        precision="tf32" if row["precision"] == "fp32" and gpu else row["precision"],
        training=row["mode"] == "train",
        device=row["device"],
        seconds=float(row["step_ms"]) / 1e3 if ok else None,
        peak_memory=float(row["peak_mem_mb"]) * 1e6 if ok and gpu else None,
    )


def _model(row: _Row, traced: Sequence[_Row]) -> Model:
    batch = int(row["batch"])
    operators, saved = _operators(traced)
    # FLOP that could not be counted (the field is empty) count as none.
    forward_flop = float(row["flops_fwd"] or 0.0)
    step_flop = TRAINING_FLOP_PER_FORWARD_FLOP * forward_flop
    if row["mode"] == "train":
        step_flop = float(row["flops_step"] or 0.0)
    return Model(
        parameters=int(row["params"]),
        parameter_bytes=float(row["param_bytes"]),
        buffer_bytes=0.0,
        modules=int(row["modules"]),
        layers=(),
        optimizer="SGD",
        optimizer_state_bytes=float(row["param_bytes"]),
        precision="fp32",
        forward_flop_per_sample=forward_flop / batch,
        step_flop_per_sample=step_flop / batch,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=_saved_on_device(operators, saved),
        operators=operators,
    )


def _operators(traced: Sequence[_Row]) -> tuple[tuple[Operators, ...], float]:
    """Lines through the two traced batches, and the bytes saved per sample."""
    batches = sorted({int(r["batch"]) for r in traced})
    if len(batches) < 2:
        raise ValueError(f"ops.csv has {traced[0]['model']} at one batch only; a line needs two")
    small, large = batches[:2]
    rows = {(int(r["batch"]), r["phase"], r["kind"]): r for r in traced}
    operators, saved = [], 0.0
    for (batch, phase, kind), first in rows.items():
        second = rows.get((large, phase, kind))
        if batch != small or second is None:
            continue
        read, written = (
            (float(second[c]) - float(first[c])) / (large - small) for c in ("bytes_in", "bytes_out")
        )
        if kind == "saved":
            saved = max(0.0, written)
            continue
        total = float(first["bytes_in"]) + float(first["bytes_out"])
        fixed = max(0.0, total - small * (read + written))
        operators.append(
            Operators(phase, kind, float(first["count"]), fixed, max(0.0, read + written), max(0.0, written))
        )
    return tuple(operators), saved


def _saved_on_device(operators: tuple[Operators, ...], saved: float) -> float:
    """Bytes per sample a GPU keeps for the backward pass, from the bytes that the CPU trace counts as saved.

    The trace counts a result that an in-place activation overwrites twice. Convolutional networks are
    written that way, so there the results of the layers themselves are the better count.
    """
    written = {o.kind: o.written_sample_bytes for o in operators if o.phase == "forward"}
    products = written.get("conv", 0.0) + written.get("matmul", 0.0)
    layers = products + sum(written.get(kind, 0.0) for kind in ("norm", "pool", "copy"))
    unfused = _FUSED_ATTENTION_SAVES * written.get("softmax", 0.0)
    conv_share = written.get("conv", 0.0) / max(products, 1.0)
    in_products = max(saved - unfused, written.get("matmul", 0.0))
    return conv_share * min(layers, saved) + (1.0 - conv_share) * in_products


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """A part of a model that was timed alone: its operations by kind, and seconds of both passes."""

    model: str
    precision: str
    operations: Operations
    forward: float
    backward: float


def read_stages(folder: Path) -> list[MeasuredStage]:
    """The rows of `stages.csv` in a folder; the README of the bundled one names the columns."""
    table = read_table(folder / "stages.csv", _STAGE_COLUMNS)
    try:
        return [_stage(row) for _, row in table.rows()]
    except (KeyError, ValueError) as error:
        raise BadInputError(f"{table.path} cannot be read as timed stages: {error}") from None


def _stage(row: _Row) -> MeasuredStage:
    kinds = [name.removesuffix("_calls") for name in row if name.endswith("_calls")]
    samples = float(row["samples"])

    def column(name: str, factor: float = 1.0) -> Array:
        return np.array([float(row[f"{kind}_{name}"]) * factor for kind in kinds])

    operations = Operations(
        np.array(kinds),
        column("calls"),
        column("flop", samples),
        column("traffic", samples),
        column("parameters", 4.0),
    )
    forward, backward = (float(row[f"{phase}_ms"]) / 1e3 for phase in ("forward", "backward"))
    return MeasuredStage(row["model"], row["precision"], operations, forward, backward)
