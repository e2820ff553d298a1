"""Several devices: predicted against published scaling efficiency, and steps of large language models.

`scaling_gap` is the mean distance between predicted and published efficiency (throughput per device over that
of one device) over all published rows on several GPUs whose script was also run on one. The single-device
step is the published one, so that only the cost of exchange and of waiting for each other is judged.
`llm_median_ape` is the median error of an optimizer step of language models on 8 to 512 GPUs, from the shape
of the model and the published parallelism alone. `cpu_figures` judges steps on another number of cores than
were measured, on models timed on 1 to 16 cores of one machine.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trimtab.catalog import find_accelerator
from trimtab.core import Host, Model, Operators, Parallelism, Profile, Series, Steps, Workload, from_plain
from trimtab.predict import (
    AnalyticEstimator,
    Layouts,
    Placements,
    ScaleOutAssumptions,
    all_reduce_seconds,
    exposed_seconds,
    straggler_factor,
)

SCALING_SOURCES = ("nvidia-dle", "dlperf", "flagperf", "lambda")
LLM_SOURCES = ("vtrain", "llm-foundry", "torchtitan")

PARAMETERS = {
    "bart_large": 406e6,
    "bert_base": 110e6,
    "detr": 41e6,
    "distilbert": 66e6,
    "efficientdet_d0": 3.9e6,
    "efficientnet_b0": 5.3e6,
    "efficientnetv2_s": 24e6,
    "faster_rcnn": 41e6,
    "fastpitch": 46e6,
    "glm": 335e6,
    "gnmt": 160e6,
    "hifigan": 14e6,
    "jasper_10x5": 333e6,
    "longformer": 148e6,
    "maskrcnn_resnet50_fpn": 44.4e6,
    "mobilenetv2_100": 3.5e6,
    "nnunet": 31e6,
    "resnet50": 25.6e6,
    "resnext101_32x4d": 44.2e6,
    "retinanet": 34e6,
    "seresnext101_32x4d": 49e6,
    "tacotron2": 28e6,
    "transformer": 210e6,
    "transformer_big": 210e6,
    "transformer_xl": 192e6,
    "transformer_xl_base": 192e6,
    "transformer_xl_large": 247e6,
    "unet_medical": 31e6,
    "vit": 86e6,
    "waveglow": 88e6,
}
"""Published parameter counts of the architectures with rows on several devices."""

_USUAL_STEP = 0.25  # seconds, where a source gives throughput in units without a step time
_NETWORK = {"dlperf": 12.5e9, "flagperf": 12.5e9}  # bytes/s of a machine: 100 Gbit InfiniBand
_DGX_NETWORK = {"V100": 50e9, "A100": 200e9, "H100": 400e9, "H200": 400e9}
_MOST_GPUS, _LEAST_GPUS = 512, 8


def scaling_figures(data: Path) -> dict[str, Any]:
    """Figures of several GPUs, language models and CPUs; those without a row in `data` are left out."""
    folder = data / "gpu-public" if (data / "gpu-public").is_dir() else data
    gaps = {source: list(_gaps(folder, source)) for source in SCALING_SOURCES}
    errors = {source: list(_llm_errors(folder, source)) for source in LLM_SOURCES}
    every_gap = [gap for part in gaps.values() for gap in part]
    every_error = [error for part in errors.values() for error in part]
    figures: dict[str, Any] = {"cpu": cpu_figures()}
    if every_gap:
        figures |= {
            "scaling_gap": float(np.mean(every_gap)),
            "scaling_rows": len(every_gap),
            "scaling_gap_by_source": {source: float(np.mean(part)) for source, part in gaps.items() if part},
        }
    if every_error:
        figures |= {
            "llm_median_ape": float(np.median(np.abs(every_error))),
            "llm_bias": float(np.median(every_error)),
            "llm_rows": len(every_error),
            "llm_median_ape_by_source": {
                source: float(np.median(np.abs(part))) for source, part in errors.items() if part
            },
        }
    return figures


def _rows(folder: Path, source: str) -> list[dict[str, str]]:
    path = folder / f"{source}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["mode"] == "train"]


def _gaps(folder: Path, source: str) -> Iterator[float]:
    """Distance of predicted from published efficiency, row by row."""
    names = ("gpu", "arch", "precision", "batch_per_gpu", "input", "framework", "engine", "layout")
    alone: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    several = []
    for row in _rows(folder, source):
        if not row["samples_per_s"] or "SUSPECT" in row["note"]:
            continue
        key = tuple(row[name] for name in names)
        if row["gpus"] == "1":
            alone[key].append(row)
        else:
            several.append((key, row))
    for key, row in several:
        if key not in alone or row["arch"] not in PARAMETERS:
            continue
        one = median(float(single["samples_per_s"]) for single in alone[key])
        steps = [float(single["step_ms"]) / 1e3 for single in alone[key] if single["step_ms"]]
        devices, nodes = int(row["gpus"]), int(row["nodes"] or 1)
        published = float(row["samples_per_s"]) / devices / one
        step = median(steps) if steps else _USUAL_STEP
        yield abs(_efficiency(row["gpu"], PARAMETERS[row["arch"]], devices, nodes, step, source) - published)


def _efficiency(gpu: str, parameters: float, devices: int, nodes: int, step: float, source: str) -> float:
    assume, per_node = ScaleOutAssumptions(), devices / nodes
    network = _NETWORK.get(source) or _dgx_network(gpu)
    reduce = all_reduce_seconds(4.0 * parameters, per_node, nodes, _link(gpu), network, assume)
    waiting = exposed_seconds(reduce, step, assume)
    return float(step / ((step + waiting) * straggler_factor(devices, assume)))


def _name(gpu: str) -> str:
    """The catalog's name of a device as the sources spell it."""
    family = re.match(r"(V100|A100|H100|H200)", gpu)
    if not family or find_accelerator(gpu):
        return gpu
    kind = family[1]
    if kind == "A100" and "80GB" in gpu:
        return "A100-80GB"
    return "V100-32GB" if kind == "V100" and "32GB" in gpu else kind


def _dgx_network(gpu: str) -> float:
    return next((rate for name, rate in _DGX_NETWORK.items() if gpu.startswith(name)), 12.5e9)


def _link(gpu: str) -> float:
    known = find_accelerator(_name(gpu))
    return known.interconnect.bandwidth if known else 16e9


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """Shape of a decoder-only transformer; `feed_forward` is the width between its two or three products."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    feed_forward: int
    key_heads: int
    gated: bool = False

    def facts(self, length: int, precision: str) -> Model:
        """Facts of the model as a trace would count them, with fused attention and Adam."""
        w, f = self.width, self.feed_forward
        keys = w * self.key_heads // self.heads
        products = [(w, w), (w, 2 * keys), (w, w), (w, f * (2 if self.gated else 1)), (f, w)]
        per_layer = sum(a * b for a, b in products)
        parameters = self.layers * (per_layer + 2 * w) + self.vocabulary * w * (2 if self.gated else 1)
        row = 4.0 * length
        written = row * (self.layers * sum(b for _, b in products) + self.vocabulary)
        moved = written + row * (self.layers * sum(a for a, _ in products) + w)
        attention = 2.0 * self.layers * length**2 * w  # causal: half of the scores
        forward = 2.0 * length * (self.layers * per_layer + self.vocabulary * w) + attention
        norms = 2.0 * self.layers + 1
        light = row * self.layers * (2 * f + 2 * w)
        operators = []
        # Views and copies that come with products and attention, as traces of the bundled models have them.
        views = {"forward": 1.5 * 5 + 25, "backward": 10.7 * 5 + 26}
        for phase, factor in (("forward", 1.0), ("backward", 2.0)):
            operators.append(Operators(phase, "view", views[phase] * self.layers, 0.0, 0.0))
            for kind, calls, fixed, bytes_moved, bytes_written in (
                ("matmul", 5.0 * self.layers + 1, 4.0 * self.layers * per_layer, moved, written),
                ("attention", float(self.layers), 0.0, 4 * row * self.layers * w, row * self.layers * w),
                ("norm", norms, 0.0, 2 * row * norms * w, row * norms * w),
                ("elementwise", 6.0 * self.layers, 0.0, 2 * light, light),
                ("softmax", 1.0, 0.0, 2 * row * self.vocabulary, row * self.vocabulary),
                ("embedding", 1.0, 0.0, row * w, row * w),
            ):
                operators.append(
                    Operators(
                        phase,
                        kind,
                        factor * calls,
                        factor * fixed,
                        factor * bytes_moved,
                        factor * bytes_written,
                    )
                )
        return Model(
            parameters=int(parameters),
            parameter_bytes=4.0 * parameters,
            buffer_bytes=0.0,
            modules=12 * self.layers,
            layers=(),
            optimizer="AdamW",
            optimizer_state_bytes=8.0 * parameters,
            precision=precision,
            forward_flop_per_sample=forward,
            step_flop_per_sample=3 * forward,
            saved_fixed_bytes=0.0,
            saved_sample_bytes=row * self.layers * (8 * w + 3 * f),
            output_bytes_per_sample=row * self.vocabulary,
            operators=tuple(operators),
        )


_SHAPES = {
    "mpt_125m": LanguageModel(768, 12, 12, 50_368, 3072, 12),
    "mpt_760m": LanguageModel(1536, 24, 12, 50_368, 6144, 12),
    "mpt_7b": LanguageModel(4096, 32, 32, 50_368, 16_384, 32),
    "mpt_30b": LanguageModel(7168, 48, 56, 50_368, 28_672, 56),
    "llama3_8b": LanguageModel(4096, 32, 32, 128_256, 14_336, 8, True),
    "llama3_70b": LanguageModel(8192, 80, 64, 128_256, 28_672, 8, True),
    "llama3_405b": LanguageModel(16_384, 126, 128, 128_256, 53_248, 8, True),
}


def _shape(arch: str) -> LanguageModel | None:
    gpt = re.fullmatch(r"gpt_h(\d+)_l(\d+)_a(\d+)", arch)
    if gpt:
        width, layers, heads = map(int, gpt.groups())
        return LanguageModel(width, layers, heads, 51_200, 4 * width, heads)
    return _SHAPES.get(arch)


@dataclass(frozen=True, slots=True)
class LanguageStep:
    """A published step: its model, devices, samples per device, layout, and seconds."""

    model: LanguageModel
    gpu: str
    devices: int
    nodes: int
    length: int
    samples: float
    parallel: Parallelism
    precision: str
    seconds: float


def language_steps(folder: Path, source: str) -> Iterator[LanguageStep]:
    """Steps on 8 to 512 devices in a 16-bit format whose layout the source gives."""
    for row in _rows(folder, source):
        shape, devices = _shape(row["arch"]), int(row["gpus"])
        sixteen = re.match(r"(bf16|fp16)", row["precision"])
        if shape is None or not _LEAST_GPUS <= devices <= _MOST_GPUS or not sixteen:
            continue
        length = int(row["input"])
        if row["unit"] == "tokens" and row["samples_per_s"]:
            seconds = float(row["batch_per_gpu"]) * devices * length / float(row["samples_per_s"])
        else:
            seconds = float(row["step_ms"]) / 1e3
        parallel = _parallelism(row["note"], float(row["batch_per_gpu"]))
        if parallel is not None:
            yield LanguageStep(
                shape,
                row["gpu"],
                devices,
                int(row["nodes"] or 1),
                length,
                float(row["batch_per_gpu"]),
                parallel,
                sixteen[1],
                seconds,
            )


def _parallelism(note: str, samples: float) -> Parallelism | None:
    """The layout that a note describes: Megatron's TP, DP and PP, or FSDP; None for others."""
    grid = re.search(r"TP (\d+) DP (\d+) PP (\d+)", note)
    micro = re.search(r"micro-batch (\d+)", note)
    if grid and micro:
        tensor, _, pipeline = map(int, grid.groups())
        count = max(1, round(samples * tensor * pipeline / int(micro[1])))
        return Parallelism("none", tensor, pipeline, count, "recomputation" in note)
    if "SHARD" in note and micro:
        count = max(1, round(samples / int(micro[1])))
        sharding = "full" if "FULL_SHARD" in note else "gradients"
        return Parallelism(sharding, 1, 1, count, "checkpointing True" in note)
    if note.startswith("FSDP") and "TP" not in note and "CP" not in note:
        return Parallelism("full", recompute=False)
    return None


def _profile(model: Model, cores: float = 1.0, steps: Steps | None = None) -> Profile:
    return Profile(
        id="model",
        created=0.0,
        workload=Workload("model"),
        host=Host("", cores, 1.0),
        window=0.0,
        every=0.0,
        method="",
        ended="",
        status=0,
        series=Series(),
        model=model,
        steps=steps,
    )


def estimated_seconds(step: LanguageStep) -> float:
    """Seconds of a published step by the cost model."""
    model = step.model.facts(step.length, step.precision)
    profile = _profile(model)
    replica = step.samples * step.parallel.tensor * step.parallel.pipeline
    where = Placements(
        devices=(_name(step.gpu),),
        device=np.zeros(1, dtype=np.intp),
        per_node=np.array([step.devices / step.nodes]),
        nodes=np.array([float(step.nodes)]),
        cores=np.array([128.0]),
        memory=np.array([1e12]),
        network=np.array([_dgx_network(step.gpu)]),
        batch=np.array([replica]),
        layouts=Layouts.of([step.parallel]),
    )
    return float(AnalyticEstimator(profile, step.precision).estimate(where).total[0])


def _llm_errors(folder: Path, source: str) -> Iterator[float]:
    """Relative error of the estimated step, row by row."""
    for step in language_steps(folder, source):
        yield estimated_seconds(step) / step.seconds - 1.0


CPU_CORES = Path(__file__).parent.parent / "data" / "cpu_cores.json"
_PROFILED_CORES = (1, 2, 4)
_STEPS_MEASURED = 20


def cpu_figures() -> dict[str, float]:
    """Error and coverage of steps on 1 to 16 cores, each from a run on one, two or four of them."""
    errors, inside = [], []
    for entry in json.loads(CPU_CORES.read_text("utf-8"))["models"].values():
        model = from_plain(Model, entry["model"])
        measured = {int(cores): float(seconds) for cores, seconds in entry["seconds"].items()}
        for local in _PROFILED_CORES:
            steps = Steps((measured[local],) * _STEPS_MEASURED, entry["batch"], 1, "cpu")
            estimator = AnalyticEstimator(_profile(model, local, steps))
            others = [cores for cores in measured if cores != local]
            rows = np.ones(len(others))
            where = Placements(
                devices=(),
                device=np.full(len(others), -1, dtype=np.intp),
                per_node=rows,
                nodes=rows,
                cores=np.array(others, dtype=float),
                memory=1e12 * rows,
                network=1e9 * rows,
                batch=entry["batch"] * rows,
            )
            answer = estimator.estimate(where)
            ratio = np.array([measured[cores] for cores in others]) / answer.total
            errors += np.abs(1.0 / ratio - 1.0).tolist()
            inside += ((answer.low <= ratio) & (ratio <= answer.high)).tolist()
    return {
        "median_ape": float(np.median(errors)),
        "coverage90": float(np.mean(inside)),
        "rows": float(len(errors)),
    }
