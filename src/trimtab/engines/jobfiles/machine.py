"""One node of an offer, as targets must ask for it."""

import math

from trimtab.catalog import accelerator
from trimtab.core import GIB, BadInputError, Offer

CPU_SHARE, CPU_RESERVE = 0.9, 0.3
"""A request is this share of the instance's CPUs less these cores: the rest is the node agents'."""

MEMORY_SHARE, MEMORY_RESERVE = 0.85, 1 * GIB
"""The same for memory, in bytes: kernel, eviction threshold and what clouds hold back on small nodes."""

_IMAGES = {"NVIDIA": "pytorch/pytorch:latest", "AMD": "rocm/pytorch:latest"}


def machine_type(offer: Offer) -> str:
    """The cloud's own name: "n1-standard-8" of "n1-standard-8+T4x1", a host with accelerators attached."""
    return offer.instance.partition("+")[0]


def is_attached(offer: Offer) -> bool:
    """Whether the accelerators are an extra of the host rather than part of its type."""
    return "+" in offer.instance


def is_tpu_vm(offer: Offer) -> bool:
    """Whether the offer is a TPU slice with its own host ("tpu-v5litepod-8") and so has no machine type."""
    return offer.instance.startswith("tpu-")


def requestable_cpus(offer: Offer) -> float:
    """Cores a job may ask for and still fit beside the node's own agents; a multiple of 0.1."""
    return max(0.1, math.floor((CPU_SHARE * offer.vcpus - CPU_RESERVE) * 10) / 10)


def requestable_memory(offer: Offer) -> int:
    """Bytes a job may ask for and still fit; whole MiB."""
    return max(128, int((MEMORY_SHARE * offer.memory - MEMORY_RESERVE) // 2**20)) * 2**20


def vendor(offer: Offer) -> str | None:
    """Who makes the offer's accelerators; None where it has none."""
    return accelerator(offer.accelerator).vendor if offer.accelerator and offer.accelerators else None


def default_image(offer: Offer) -> str:
    """A public image with PyTorch for the offer's devices."""
    maker = vendor(offer) or "NVIDIA"
    if maker not in _IMAGES:
        raise BadInputError(
            f"there is no default container image for {offer.accelerator}; name one that has it"
        )
    return _IMAGES[maker]
