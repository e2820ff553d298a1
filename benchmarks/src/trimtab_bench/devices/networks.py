"""The networks of published measurements, built without weights and traced operator by operator.

They are traced with fake tensors, which have shapes and no memory, by the function behind
`trimtab profile --model`. A traced network is a list of totals (`TracedDemand`), kept in a file each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from trimtab.core import BadInputError
from trimtab.observe import trace_model
from trimtab.predict import TracedDemand, traced_demand
from trimtab_bench.harness import BenchPart

_BATCH = 4
HOW_TO_INSTALL = (
    "trimtab bench devices builds networks with timm, torchvision and transformers; install them with:"
    " pip install 'trimtab-bench[networks]', and where only the CPU build of PyTorch is installed:"
    " pip install --no-deps torchvision timm"
)


@dataclass(frozen=True, slots=True)
class TracedNetwork:
    """A network at one input size.

    `library:name` as in the column `build`, and pixels of a side or tokens.
    """

    build: str
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class NetworkFacts:
    """Totals of a training step and of a forward pass in evaluation mode."""

    train: TracedDemand
    infer: TracedDemand


def check_installed() -> None:
    """Raise unless the libraries that build networks are there."""
    missing = [name for name in ("timm", "torchvision", "transformers") if find_spec(name) is None]
    if missing:
        raise BadInputError(f"{' and '.join(missing)} cannot be imported; {HOW_TO_INSTALL}")


def trace_part(network: TracedNetwork) -> BenchPart:
    """The tracing of a network as a part of the bench that is kept when it is done."""
    key = ("facts", network.build.replace(":", "-"), str(network.size))
    return BenchPart(key, lambda: _trace(network))


def parse_facts(data: dict[str, Any]) -> NetworkFacts | None:
    """Facts from a finished part; None if the network could not be traced."""
    if "problem" in data:
        return None

    def demand(name: str) -> TracedDemand:
        fixed, sample = (np.array(data[name][part], dtype=float) for part in ("fixed", "sample"))
        return TracedDemand(fixed, sample, data["parameters"], data["tensors"])

    return NetworkFacts(demand("train"), demand("infer"))


def _trace(network: TracedNetwork) -> dict[str, Any]:
    """Plain data of a network's facts, or what was wrong."""
    data: dict[str, Any] = {}
    try:
        build, shape = _recipe(network)
        for mode, optimizer in (("train", "SGD"), ("infer", None)):
            demand = traced_demand(trace_model(build, shape, optimizer=optimizer))
            data[mode] = {"fixed": demand.fixed.tolist(), "sample": demand.sample.tolist()}
            data |= {"parameters": demand.parameters, "tensors": demand.tensors}
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"[:200]}
    return data


def _recipe(network: TracedNetwork) -> tuple[Callable[[], Any], str]:
    """A function that builds the network, and the shape of its input."""
    library, name = network.build.split(":")
    _declare_operators()
    if library == "transformers":
        return lambda: _transformer(name, network.size), f"{_BATCH}x{network.size}:int64"
    channels = 3
    if library == "timm":
        timm = import_module("timm")
        trained = timm.get_pretrained_cfg(name)
        channels = trained.input_size[0] if trained else channels
        build: Callable[[], Any] = lambda: timm.create_model(name)  # noqa: E731
    else:
        keywords = (
            {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        )
        build = lambda: getattr(import_module("torchvision").models, name)(**keywords)  # noqa: E731
    return build, f"{_BATCH}x{channels}x{network.size}x{network.size}"


def _declare_operators() -> None:
    """Declare two compiled operators that torchvision's import asks for and a CPU build of PyTorch lacks.

    transformers imports torchvision too, where it is installed.
    """
    import torch

    global _library
    if _library is None and not hasattr(torch.ops.torchvision, "nms"):
        _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_library: Any = None


def _transformer(name: str, length: int) -> Any:
    t: Any = import_module("transformers")
    eager = {"attn_implementation": "eager"}
    if name == "bert_base":
        return t.BertForQuestionAnswering(t.BertConfig(**eager))
    if name in ("bert_mlm", "distilbert_mlm"):
        masked = (t.BertForMaskedLM, t.BertConfig) if name == "bert_mlm" else None
        model, configuration = masked or (t.DistilBertForMaskedLM, t.DistilBertConfig)
        return model(configuration(**eager))
    widths = {"gpt2": (768, 12, 12), "gpt2_large": (1280, 36, 20), "gpt3_2.7b": (2560, 32, 32)}
    if name in widths:
        width, layers, heads = widths[name]
        shape = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": max(1024, length)}
        return t.GPT2LMHeadModel(t.GPT2Config(**shape, **eager, use_cache=False))
    if name == "opt_1.3b":
        shape = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192}
        return t.OPTForCausalLM(t.OPTConfig(**shape, **eager, layerdrop=0.0, use_cache=False))
    raise KeyError(f"no configuration of {name}")
