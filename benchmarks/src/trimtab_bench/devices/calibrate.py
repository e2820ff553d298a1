"""Fits the laws of traced steps that ship in the catalog: `python -m trimtab_bench.devices.calibrate DATA
FILE`.

Constants come from sources whose licence allows it, ranges from devices and architectures left out.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError
from trimtab.kernel import write_whole
from trimtab.predict import OWN_SOURCE, TracedModel, TracedRows, learn_ranges, learn_traced, traced_data
from trimtab.predict.tables import take_rows
from trimtab_bench.devices import cross_validated, fitted_to, with_facts
from trimtab_bench.devices.published import as_rows, read_published
from trimtab_bench.harness import BenchOptions

_PUBLISHERS = {
    "timm": "huggingface/pytorch-image-models (timm) at aa4b5850",
    "torchvision-gpu": "lamikr/pytorch-gpu-benchmark at 43d1613",
    "nvidia-dle": "NVIDIA/DeepLearningExamples at 729963dd",
    "dlperf": "Oneflow-Inc/DLPerf at c89430b",
    "neusight": "sitar-lab/NeuSight at 6945927",
    "vision-zoos": "microsoft/Swin-Transformer, microsoft/Cream and facebookresearch/hiera",
}


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m trimtab_bench.devices.calibrate DATA FILE")
    options = BenchOptions(data=Path(sys.argv[1]))
    try:
        steps, _ = read_published(Path(sys.argv[1]))
        steps, facts, _ = with_facts(steps, options)
    except BadInputError as error:
        raise SystemExit(str(error)) from None
    rows = as_rows(steps, facts)
    errors, _, _ = cross_validated(rows, options)
    licensed = fitted_to(rows)
    ranges = learn_ranges(
        rows, np.where(licensed, errors["architecture_unseen"], np.nan), errors["device_unseen"]
    )
    known = take_rows(rows, licensed)
    model = learn_traced(known)
    data = traced_data(TracedModel(model.fitted, model.similar, ranges)) | {"evidence": evidence(known)}
    write_whole(Path(sys.argv[2]), (json.dumps(data, separators=(",", ":")) + "\n").encode())


def evidence(rows: TracedRows) -> dict[str, list[str]]:
    """By device: who measured steps on it, and how many of training and of inference."""
    counts = Counter(zip(rows.device.tolist(), rows.source.tolist(), rows.mode.tolist(), strict=True))
    words: dict[str, list[str]] = {}
    for device in sorted(set(rows.device.tolist())):
        sources = sorted({s for d, s, _ in counts if d == device}, key=lambda s: (s != OWN_SOURCE, s))
        for source in sources:
            by = (
                "measured by Trimtab"
                if source == OWN_SOURCE
                else f"published by {_PUBLISHERS.get(source, source)}"
            )
            train, infer = (counts[device, source, mode] for mode in ("train", "infer"))
            words.setdefault(device, []).append(f"{by}: {train} training and {infer} inference steps")
    return words


if __name__ == "__main__":
    main()
