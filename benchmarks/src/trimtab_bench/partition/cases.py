"""Models and the devices they are split over: equal, of two kinds, and wildly unequal."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from trimtab.partition import Devices, Graph, Recipe, devices_of

EQUAL, TWO_TIER, UNEQUAL = "equal", "two-tier", "unequal"


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Devices by kind and count, the network between machines, and how unequal they are."""

    text: str
    network: str
    kind: str

    @property
    def devices(self) -> Devices:
        """The devices themselves."""
        return devices_of(self.text, self.network)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, what it is trained with, and what on."""

    model: str
    recipe: Recipe
    on: DeviceSet

    @property
    def name(self) -> str:
        """Such as `gpt2_xl on a100-40:2,t4:4`."""
        return f"{self.model} on {self.on.text}"


_FEW = (
    DeviceSet("a100-80:8", "100Gbit", EQUAL),
    DeviceSet("a100-40:2,t4:4", "25Gbit", TWO_TIER),
    DeviceSet("a100-40:4,v100:4", "100Gbit", TWO_TIER),
    DeviceSet("h100:1,a10g:1,t4:1,k80:2", "25Gbit", UNEQUAL),
)
_MANY = (
    DeviceSet("h100:128/8", "400Gbit", EQUAL),
    DeviceSet("h100:64/8,a100-80:64/8", "200Gbit", TWO_TIER),
    DeviceSet("h200:16/8,h100:32/8,a100-80:64/8,a100-40:32/8", "100Gbit", UNEQUAL),
)
_MOST = (
    DeviceSet("h200:192/8", "400Gbit", EQUAL),
    DeviceSet("b200:64/8,h200:128/8", "400Gbit", TWO_TIER),
    DeviceSet("b200:64/8,h200:64/8,h100:64/8,a100-80:64/8", "200Gbit", UNEQUAL),
)

_SETS: dict[str, tuple[DeviceSet, ...]] = {"gpt3_175b": _MANY, "trillion": _MOST}
_RECIPES = {
    "vgg16": Recipe(256),
    "resnet101": Recipe(256),
    "inception": Recipe(256),
    "unet": Recipe(64),
    "gpt2_small": Recipe(128, "fp16"),
    "gpt2_medium": Recipe(128, "fp16"),
    "gpt2_large": Recipe(128, "fp16"),
    "gpt2_xl": Recipe(128, "fp16"),
    "bert_large": Recipe(256, "fp16"),
    "moe": Recipe(64, "fp16"),
    "gpt3_175b": Recipe(1024, "bf16"),
    "trillion": Recipe(1024, "bf16"),
}
_QUICK = ("vgg16", "gpt2_small")


def cases(quick: bool = False) -> Iterator[Case]:
    """Every model on its sets of devices."""
    for model in _QUICK if quick else _RECIPES:
        for on in _SETS.get(model, _FEW):
            if not quick or on.kind != EQUAL:
                yield Case(model, _RECIPES[model], on)


@lru_cache(maxsize=2)
def graph_of(model: str) -> Graph:
    """The graph of a model, captured without its memory."""
    import torch

    from trimtab.partition import capture_model
    from trimtab_bench.partition.models import MODELS

    with torch.device("meta"):
        module, inputs = MODELS[model]()
    return capture_model(module, inputs, model).graph
