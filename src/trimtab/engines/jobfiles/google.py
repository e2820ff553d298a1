"""Google Cloud's names for accelerators."""

from trimtab.catalog import accelerator
from trimtab.core import BadInputError, Offer
from trimtab.engines.jobfiles.machine import machine_type

_TYPES = {
    "K80": "NVIDIA_TESLA_K80",
    "P4": "NVIDIA_TESLA_P4",
    "P100": "NVIDIA_TESLA_P100",
    "V100": "NVIDIA_TESLA_V100",
    "T4": "NVIDIA_TESLA_T4",
    "A100": "NVIDIA_TESLA_A100",
    "A100-80GB": "NVIDIA_A100_80GB",
    "L4": "NVIDIA_L4",
    "H100": "NVIDIA_H100_80GB",
    "H200": "NVIDIA_H200_141GB",
    "B200": "NVIDIA_B200",
    "GB200": "NVIDIA_GB200",
    "RTX-PRO-6000": "NVIDIA_RTX_PRO_6000",
}


def accelerator_type(offer: Offer) -> str:
    """The Vertex AI enum value, such as NVIDIA_TESLA_T4."""
    if machine_type(offer).startswith("a3-megagpu"):
        return "NVIDIA_H100_MEGA_80GB"
    name = accelerator(offer.accelerator or "").name
    if name not in _TYPES:
        raise BadInputError(f"Vertex AI has no GPU called {name}; choose another target or configuration")
    return _TYPES[name]


def node_label(offer: Offer) -> str:
    """The value of GKE's node label, such as nvidia-tesla-t4."""
    return accelerator_type(offer).lower().replace("_", "-")
