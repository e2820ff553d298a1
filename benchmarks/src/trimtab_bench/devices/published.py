"""Published measurements that can be compared with an estimate, and why others cannot.

A folder holds `<source>.csv` files; the README of `gpu-public` names the columns. Steps that Trimtab
measured itself (`gpu-steps`, in the folder beside it) join them as a source of their own.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import BadInputError
from trimtab.predict import OWN_SOURCE, Circumstances, TracedRows, device_columns
from trimtab.predict.tables import take_rows
from trimtab_bench.devices.networks import NetworkFacts, TracedNetwork

UNLICENSED = ("lambda", "llama-cpp", "u39kun")
"""Sources without a licence: scored, never fitted to."""

_COLUMNS = (
    "source", "gpu", "gpus", "arch", "mode", "precision", "batch_per_gpu", "input", "step_ms", "framework",
    "engine", "layout", "build", "note",
)  # fmt: skip
_FORMATS = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "half",
    "bf16": "half",
    "fp16-amp": "cast",
    "bf16-amp": "cast",
}
_WITHOUT_UPDATE = ("torchvision-gpu", "u39kun", "neusight")
_COPIES_INPUT = ("torchvision-gpu",)
_VERSIONS = {"torchvision-gpu": 1.05, "nvidia-dle": 1.08}  # of PyTorch, where the rows do not say
_ROCM_VERSION = 2.0
_SAME_PARAMETERS = 0.03
_SAME_NAMES = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v3_large", "resnet18",
    "resnet50", "swin_t", "vgg16", "wide_resnet50_2",
)  # fmt: skip
# Networks of `gpu-steps` under the names of others: build, input size, architecture.
_OWN = {
    **{name: (f"torchvision:{name}", 224, name) for name in _SAME_NAMES},
    "mnasnet": ("torchvision:mnasnet1_0", 224, "mnasnet1_0"),
    "shufflenet_v2": ("torchvision:shufflenet_v2_x1_0", 224, "shufflenet_v2_x1_0"),
    "squeezenet": ("torchvision:squeezenet1_1", 224, "squeezenet1_1"),
    "vit_b_16": ("torchvision:vit_b_16", 224, "vit_base_patch16"),
    "bert_base_s128": ("transformers:bert_mlm", 128, "bert_base"),
    "bert_base_s384": ("transformers:bert_mlm", 384, "bert_base"),
    "distilbert_s128": ("transformers:distilbert_mlm", 128, "distilbert"),
    "gpt2_s512": ("transformers:gpt2", 512, "gpt2"),
    "gpt2_s1024": ("transformers:gpt2", 1024, "gpt2"),
    "gpt2_large_s512": ("transformers:gpt2_large", 512, "gpt2_large"),
}


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """One measured step. `number_format` is fp32, tf32, half (a model in 16 bits) or cast (autocast)."""

    source: str
    device: Accelerator
    network: TracedNetwork
    architecture: str
    training: bool
    number_format: str
    batch: float
    seconds: float
    version: float
    channels_last: bool
    parameters: float | None


def read_published(folder: Path) -> tuple[list[PublishedStep], Counter[str]]:
    """Comparable steps of a folder, or of its subfolder `gpu-public`; and counts of other rows, by reason."""
    inner = folder / "gpu-public"
    public = inner if inner.is_dir() else folder
    steps: list[PublishedStep] = []
    reasons: Counter[str] = Counter()
    for path in sorted(public.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if not set(_COLUMNS) <= set(reader.fieldnames or ()):
                continue
            for row in reader:
                try:
                    step = _step(row)
                except ValueError as error:
                    raise BadInputError(f"{path}, line {reader.line_num}: {error}") from None
                if isinstance(step, str):
                    reasons[step] += 1
                else:
                    steps.append(step)
    own = folder / OWN_SOURCE / "steps.csv"
    if own.is_file():
        steps += _own_steps(own)
    if not steps:
        raise BadInputError(
            f"{folder} has no comparable measurement; give a folder of tables as in gpu-public, with"
            f" the columns {', '.join(_COLUMNS)}"
        )
    return steps, reasons


def _step(row: Mapping[str, str]) -> PublishedStep | str:
    """A row's step, or why it cannot be compared."""
    if row["engine"] != "eager":
        return "not PyTorch's eager mode"
    if row["gpus"] != "1":
        return "several devices"
    if not row["build"]:
        return "the network cannot be built"
    if row["source"] == "cnn-benchmarks":
        return "Torch 7, not PyTorch"
    if row["precision"] not in _FORMATS:
        return f"precision {row['precision'] or 'not stated'}"
    if not (row["batch_per_gpu"] and row["step_ms"] and row["input"].isdigit()):
        return "batch, input size or time not stated"
    if "SUSPECT" in row["note"]:
        return "marked as suspect"
    device = find_accelerator(row["gpu"])
    if device is None:
        return f"device {row['gpu']} is not in the catalog"
    stated = re.search(r"params_m[=: ]+([\d.]+)", row["note"])
    seconds, batch = float(row["step_ms"]) / 1e3, float(row["batch_per_gpu"])
    if not (0 < seconds < np.inf and 0 < batch < np.inf):
        raise ValueError(
            f"a step of {row['step_ms']} ms at batch {row['batch_per_gpu']} is not a measurement"
        )
    return PublishedStep(
        row["source"],
        device,
        TracedNetwork(row["build"], int(row["input"])),
        row["arch"],
        row["mode"] == "train",
        _FORMATS[row["precision"]],
        batch,
        seconds,
        _version(row),
        row["layout"] == "nhwc",
        float(stated[1]) * 1e6 if stated else None,
    )


def _version(row: Mapping[str, str]) -> float:
    """PyTorch's version as a number: 2.04 for 2.4."""
    found = re.search(r"pytorch-(\d+)\.(\d+)", row["framework"])
    if found:
        return int(found[1]) + int(found[2]) / 100
    if "rocm" in row["framework"]:
        return _ROCM_VERSION
    return _VERSIONS.get(row["source"], 1.05)


def _own_steps(path: Path) -> Iterator[PublishedStep]:
    device = find_accelerator("H200")
    assert device is not None
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["device"] != "cuda" or row["status"] != "ok" or row["model"] not in _OWN:
                continue
            build, size, architecture = _OWN[row["model"]]
            yield PublishedStep(
                OWN_SOURCE,
                device,
                TracedNetwork(build, size),
                architecture,
                row["mode"] == "train",
                "tf32" if row["precision"] == "fp32" else "cast",
                float(row["batch"]),
                float(row["step_ms"]) / 1e3,
                2.11,
                False,
                None,
            )


def matching(step: PublishedStep, facts: NetworkFacts | None) -> str | None:
    """Why a step cannot be compared with the network that was built; None if it can."""
    if facts is None:
        return "the network could not be traced"
    if step.parameters and abs(step.parameters / facts.train.parameters - 1) > _SAME_PARAMETERS:
        return "the network that was built has another number of parameters"
    return None


def as_rows(steps: list[PublishedStep], facts: Mapping[TracedNetwork, NetworkFacts]) -> TracedRows:
    """Steps as the cost model's columns."""
    demands = [(known.train if s.training else known.infer) for s in steps for known in (facts[s.network],)]
    batch = np.array([s.batch for s in steps])
    fixed, sample = (np.array([getattr(d, part) for d in demands]) for part in ("fixed", "sample"))
    devices = list({s.device.name: s.device for s in steps}.values())
    places = {device.name: i for i, device in enumerate(devices)}

    def flag(*values: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array(values, dtype=float)

    tf32 = flag(*(s.number_format == "tf32" for s in steps))
    pixels = [3.0 * s.network.size**2 * s.batch * 4.0 for s in steps]
    return TracedRows(
        totals=fixed + batch[:, None] * sample,
        parameters=np.array([d.parameters for d in demands]),
        tensors=np.array([d.tensors for d in demands]),
        batch=batch,
        facts=take_rows(device_columns(devices), np.array([places[s.device.name] for s in steps])),
        run=Circumstances(
            half=flag(*(s.number_format in ("half", "cast") for s in steps)),
            cast=flag(*(s.number_format == "cast" for s in steps)),
            tf32=tf32,
            conv_tf32=tf32,
            training=flag(*(s.training for s in steps)),
            channels_last=flag(*(s.channels_last for s in steps)),
            updates=flag(*(s.training and s.source not in _WITHOUT_UPDATE for s in steps)),
            copied=np.array(
                [p if s.source in _COPIES_INPUT else 0.0 for p, s in zip(pixels, steps, strict=True)]
            ),
            version=np.array([s.version for s in steps]),
        ),
        seconds=np.array([s.seconds for s in steps]),
        device=np.array([s.device.name for s in steps]),
        architecture=np.array([s.architecture for s in steps]),
        source=np.array([s.source for s in steps]),
    )
