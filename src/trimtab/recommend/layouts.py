"""Ways to spread a model that does not fit one device, and to save memory."""

from collections.abc import Sequence
from functools import lru_cache

from trimtab.core import BadInputError, Parallelism

WAYS = ("data", "zero", "fsdp", "tensor", "pipeline")
"""Ways to spread a model over devices: replicas; replicas that share out the optimizer's state and gradients
(ZeRO 1 and 2); the weights too; devices that share products; stages."""
SAVERS = ("checkpointing", "8bit", "lora")
"""Ways to save memory: activations computed again; a smaller optimizer state; adapters instead of weights."""
DEFAULT_SAVERS = ("checkpointing",)
"""Savers that leave the result of the training as it is."""

MOST_DEVICES = 512
_ADAPTER_RANK = 16
_SHARDINGS = {"data": ("none",), "zero": ("optimizer", "gradients"), "fsdp": ("full",)}
_TENSOR, _STAGES = (2, 4, 8), (2, 4, 8, 16)
_MICROBATCHES_PER_STAGE = 4  # keep a pipeline's stages busy four fifths of the time


def check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise BadInputError(f'{option} has "{name}"; it should be some of {", ".join(known)}')


@lru_cache(4096)
def possible_layouts(
    devices: int,
    per_node: int,
    batch: int,
    ways: tuple[str, ...],
    savers: tuple[str, ...],
    blocks: bool,
) -> tuple[Parallelism, ...]:
    """Every way to spread a model over so many devices; only a model made of `blocks` can be divided."""
    shardings = [s for way in ways for s in _SHARDINGS.get(way, ()) if s == "none" or devices > 1]
    tensors = [1, *(t for t in _TENSOR if "tensor" in ways and blocks and t <= per_node and devices % t == 0)]
    made = []
    for tensor in tensors:
        for pipeline in (1, *(_STAGES if "pipeline" in ways and blocks else ())):
            parts = tensor * pipeline
            if parts > devices or devices % parts or pipeline > batch:
                continue
            micro = _microbatches(batch, pipeline)
            for sharding in shardings or ["none"]:
                if sharding != "none" and parts == devices:
                    continue  # a single replica has nobody to share with
                if pipeline > 1 and sharding in ("gradients", "full"):
                    continue  # stages hold gradients of several micro-batches; frameworks do not combine them
                if parts == 1 and sharding == "none" and "data" not in ways:
                    continue
                for recompute in (False, True) if "checkpointing" in savers and blocks else (False,):
                    for small in (False, True) if "8bit" in savers else (False,):
                        for rank in (0, _ADAPTER_RANK) if "lora" in savers and blocks else (0,):
                            made.append(
                                Parallelism(sharding, tensor, pipeline, micro, recompute, small, rank)
                            )
    return tuple(made)


def _microbatches(batch: int, stages: int) -> int:
    """The largest divisor of the batch up to four micro-batches per stage; one without stages."""
    if stages == 1:
        return 1
    most = min(batch, _MICROBATCHES_PER_STAGE * stages)
    return max(n for n in range(1, most + 1) if batch % n == 0)


def effort(parallel: Parallelism) -> int:
    """How many things a layout asks of a script: the fewest wins where times are alike."""
    return sum(
        (
            parallel.sharding != "none",
            2 * (parallel.tensor > 1),
            3 * (parallel.pipeline > 1),
            parallel.recompute,
            parallel.eight_bit_optimizer,
            2 * (parallel.adapter_rank > 0),
        )
    )
