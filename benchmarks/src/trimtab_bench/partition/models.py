"""The models that the partition bench splits: published architectures, written down here layer by layer.

A builder returns the module and its example inputs, on the default device: under `torch.device("meta")` even
the largest needs no memory.
"""

from collections.abc import Callable
from functools import partial

from trimtab_bench.partition.pictures import Built, inception, resnet101, unet, vgg16
from trimtab_bench.partition.transformers import Shape, bert, gpt, mixture

GPT2_SMALL = Shape(12, 768, 12, 1024, 50257)
GPT2_MEDIUM = Shape(24, 1024, 16, 1024, 50257)
GPT2_LARGE = Shape(36, 1280, 20, 1024, 50257)
GPT2_XL = Shape(48, 1600, 25, 1024, 50257)
BERT_LARGE = Shape(24, 1024, 16, 512, 30522)
MIXTURE = Shape(8, 1024, 16, 1024, 50257)
GPT3_175B = Shape(96, 12288, 96, 2048, 50257)
TRILLION = Shape(128, 25600, 160, 2048, 51200)

MODELS: dict[str, Callable[[], Built]] = {
    "vgg16": vgg16,
    "resnet101": resnet101,
    "inception": inception,
    "unet": unet,
    "gpt2_small": partial(gpt, GPT2_SMALL),
    "gpt2_medium": partial(gpt, GPT2_MEDIUM),
    "gpt2_large": partial(gpt, GPT2_LARGE),
    "gpt2_xl": partial(gpt, GPT2_XL),
    "bert_large": partial(bert, BERT_LARGE),
    "moe": partial(mixture, MIXTURE),
    "gpt3_175b": partial(gpt, GPT3_175B),
    "trillion": partial(gpt, TRILLION),
}
"""Every model by name; `MODELS[name]()` builds it."""
