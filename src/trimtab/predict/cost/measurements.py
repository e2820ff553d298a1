"""Measured steps of known models, and measured parts (stages) of models.

Steps are a folder of two files: what was measured, and what the models are.

`steps.csv`: model, batch, precision (fp32 is tf32 on a GPU, or bf16), mode (train, infer), device (cuda,
cpu), step_ms, peak_mem_mb, param_bytes, flops_fwd, flops_step, modules, status (ok, oom).
`ops.csv`: model, batch (two of them), phase, kind, count, bytes_in, bytes_out of one traced training step;
kind `saved` holds the bytes kept for the backward pass.
Stages are one file `stages.csv`: seconds of both passes of a part of a model, and its operations by kind.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, Model, Operators
from trimtab.predict.cost.demand import Operations

BUNDLED_STEPS = Path(str(files("trimtab.predict") / "data" / "gpu-steps"))
"""Measured steps that the shipped constants were fitted to."""
BUNDLED_STAGES = Path(str(files("trimtab.predict") / "data" / "gpu-stages"))
"""Measured parts of models that the shipped constants were fitted to."""

Array = NDArray[np.float64]

_STEP_COLUMNS = (
    "model", "batch", "precision", "mode", "device", "step_ms", "peak_mem_mb", "params", "param_bytes",
    "flops_fwd", "flops_step", "modules", "status",
)  # fmt: skip
_OPERATOR_COLUMNS = ("model", "batch", "phase", "kind", "count", "bytes_in", "bytes_out")

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
    """All rows of a folder, or of its subfolder `gpu-steps`; those of an undescribed model are left out."""
    if not (folder / "steps.csv").is_file() and (folder / "gpu-steps" / "steps.csv").is_file():
        folder = folder / "gpu-steps"
    steps = _read_csv(folder / "steps.csv", _STEP_COLUMNS)
    operators = _read_csv(folder / "ops.csv", _OPERATOR_COLUMNS)
    by_model: dict[str, list[Mapping[str, str]]] = {}
    for row in operators:
        by_model.setdefault(row["model"], []).append(row)
    # Only a training row shows the FLOP of a whole step, so it is asked first.
    by_mode = sorted(steps, key=lambda row: row["mode"] != "train")
    describing = {row["model"]: row for row in reversed(by_mode)}
    models: dict[str, Model] = {}
    measured = []
    for number, row in enumerate(steps, start=2):
        name = row["model"]
        if name not in by_model:
            continue
        try:
            if name not in models:
                models[name] = _model(describing[name], by_model[name])
            measured.append(_measured_step(row, models[name]))
        except (ValueError, TypeError, ZeroDivisionError) as error:
            raise BadInputError(f"{folder / 'steps.csv'}, line {number}: {error}") from None
    if not measured:
        raise BadInputError(f"{folder} has no measured step whose model is described in ops.csv")
    return measured


def _read_csv(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [c for c in columns if c not in (reader.fieldnames or ())]
            if missing:
                raise BadInputError(f"{path} has no column {missing[0]!r}; it needs {', '.join(columns)}")
            return list(reader)
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist; give a folder with steps.csv and ops.csv") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None


def _measured_step(row: Mapping[str, str], model: Model) -> MeasuredStep:
    ok = row["status"] == "ok"
    if ok and not 0 < float(row["step_ms"]) < math.inf:
        raise ValueError(f"a step of {row['step_ms']} ms is not a measurement")
    gpu = row["device"] != "cpu"
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


def _model(row: Mapping[str, str], traced: Iterable[Mapping[str, str]]) -> Model:
    batch = int(row["batch"])
    operators, saved = _operators(list(traced))
    return Model(
        parameters=int(row["params"]),
        parameter_bytes=float(row["param_bytes"]),
        buffer_bytes=0.0,
        modules=int(row["modules"]),
        layers=(),
        optimizer="SGD",
        optimizer_state_bytes=float(row["param_bytes"]),
        precision="fp32",
        forward_flop_per_sample=float(row["flops_fwd"] or 0.0) / batch,
        step_flop_per_sample=_step_flop(row) / batch,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=_saved_on_device(operators, saved),
        operators=operators,
    )


def _step_flop(row: Mapping[str, str]) -> float:
    """FLOP of a whole step; what could not be counted (the field is empty) counts as none."""
    if row["mode"] == "train":
        return float(row["flops_step"] or 0.0)
    return 3.0 * float(row["flops_fwd"] or 0.0)


def _operators(traced: list[Mapping[str, str]]) -> tuple[tuple[Operators, ...], float]:
    """Lines through the two traced batches, and the bytes saved per sample."""
    batches = sorted({int(r["batch"]) for r in traced})
    if len(batches) < 2:
        raise ValueError(f"ops.csv has {traced[0]['model']} at one batch only; it takes two to draw a line")
    small, large = batches[:2]
    rows = {(int(r["batch"]), r["phase"], r["kind"]): r for r in traced}
    found, saved = [], 0.0
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
        found.append(
            Operators(phase, kind, float(first["count"]), fixed, max(0.0, read + written), max(0.0, written))
        )
    return tuple(found), saved


def _saved_on_device(operators: tuple[Operators, ...], saved: float) -> float:
    """Bytes per sample a GPU keeps for the backward pass, from what the CPU trace says is saved.

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
    path = folder / "stages.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_stage(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read as timed stages: {error}") from None


def _stage(row: dict[str, str]) -> MeasuredStage:
    kinds = [name.removesuffix("_calls") for name in row if name.endswith("_calls")]
    samples = float(row["samples"])

    def column(name: str, factor: float = 1.0) -> Array:
        return np.array([float(row[f"{kind}_{name}"]) * factor for kind in kinds])

    return MeasuredStage(
        model=row["model"],
        precision=row["precision"],
        operations=Operations(
            kinds=np.array(kinds),
            calls=column("calls"),
            flop=column("flop", samples),
            traffic=column("traffic", samples),
            weight_bytes=column("parameters", 4.0),
        ),
        forward=float(row["forward_ms"]) / 1e3,
        backward=float(row["backward_ms"]) / 1e3,
    )
