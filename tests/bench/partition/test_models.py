"""The bench's models are the published ones, and the largest are captured without their memory."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="the bench's models are PyTorch modules")

from trimtab_bench.partition.models import MODELS  # noqa: E402

PUBLISHED = {
    "vgg16": (138.36e6, 0.0001),
    "resnet101": (44.55e6, 0.0002),
    "inception": (23.83e6, 0.001),
    "unet": (31.04e6, 0.001),
    "gpt2_small": (124.4e6, 0.001),
    "gpt2_medium": (354.8e6, 0.001),
    "gpt2_large": (774.0e6, 0.001),
    "gpt2_xl": (1557.6e6, 0.001),
    "bert_large": (336e6, 0.01),
    "moe": (623e6, 0.01),
    "gpt3_175b": (175e9, 0.01),
    "trillion": (1e12, 0.02),
}

GPT3 = """
import resource, torch
from trimtab_bench.partition.models import MODELS
from trimtab.partition import capture_model
with torch.device("meta"):
    model, inputs = MODELS["gpt3_175b"]()
found = capture_model(model, inputs, "gpt3")
print(found.how, len(found.graph), found.graph.total_parameters, found.graph.flop.sum())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_many_as_published(name: str) -> None:
    with torch.device("meta"):
        model, inputs = MODELS[name]()
    published, tolerance = PUBLISHED[name]
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(published, rel=tolerance)
    assert inputs[0].is_meta


@pytest.mark.slow
def test_gpt3_becomes_a_graph_in_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GPT3], capture_output=True, text=True, timeout=170, check=True
    )
    how, nodes, parameters, flop, memory = done.stdout.split()
    assert how == "export"
    assert 1000 <= int(nodes) <= 1500
    assert float(parameters) == pytest.approx(175e9, rel=0.01)
    # 2 FLOP per weight and token, and attention's scores over 2,048 tokens on top.
    assert 2 * 175e9 * 2048 < float(flop) < 1.1 * 2 * 175e9 * 2048
    assert float(memory) < 2 * 2**30
