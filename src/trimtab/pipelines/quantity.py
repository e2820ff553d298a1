"""Kubernetes quantities ("500m" of a core, "512Mi" of memory) and accelerators ("T4:1")."""

import math
import re
from typing import Any

from trimtab.core import BadInputError, one_line

_SCALES = {
    "": 1.0,
    "m": 1e-3,
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,3}))?([a-zA-Z]*)")
_MEBIBYTE = 2**20

LEAST_CPU = 0.05
LEAST_MEMORY = 64.0 * _MEBIBYTE


def quantity_of(value: Any) -> float | None:
    """Cores or bytes; None for nothing, or for a placeholder that the cluster fills in."""
    if value is None or (isinstance(value, str) and ("{{" in value or not value.strip())):
        return None
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    match = _QUANTITY.fullmatch(text)
    scale = _SCALES.get(match[3]) if match else None
    amount = float(f"{match[1]}e{match[2] or 0}") * scale if match and scale is not None else math.inf
    if not math.isfinite(amount):
        raise ValueError("it should be a quantity such as 500m or 512Mi")
    return amount


def parse_quantity(where: str, value: Any) -> float | None:
    """`quantity_of` a field that the error names."""
    try:
        return quantity_of(value)
    except ValueError as error:
        raise BadInputError(f"{where} is {one_line(value):.40}; {error}") from None


def format_cpu(cores: float) -> str:
    """Whole cores as they are, others in thousandths: "2", "350m"."""
    thousandths = math.ceil(round(cores * 1000, 6))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def format_memory(count: float) -> str:
    """Whole GiB as such, others in MiB: "2Gi", "384Mi"."""
    mebibytes = math.ceil(count / _MEBIBYTE)
    return f"{mebibytes // 1024}Gi" if mebibytes and mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def round_up_cpu(cores: float) -> float:
    """Cores rounded up to a twentieth below one, a tenth below four, a half above."""
    step = 0.05 if cores <= 1 else 0.1 if cores <= 4 else 0.5
    return max(LEAST_CPU, round(math.ceil(round(cores / step, 9)) * step, 3))


def round_up_memory(count: float) -> float:
    """Bytes rounded up to an eighth of the power of two below them; at least 64 MiB."""
    if count <= LEAST_MEMORY:
        return LEAST_MEMORY
    step = 2.0 ** (math.floor(math.log2(count)) - 3)
    return math.ceil(count / step) * step


_ACCELERATORS = re.compile(r"([A-Za-z][\w. -]{0,40}?)\s*(?::\s*(\d{1,3}))?")


def accelerators_of(value: object) -> tuple[str, int]:
    """A kind and a number from "T4:1", "A100"; ("", 0) from "none"."""
    match = _ACCELERATORS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match[2] is not None and int(match[2]) == 0):
        raise ValueError("it should be a kind and a number such as T4:1, or none")
    if match[1].lower() == "none":
        return "", 0
    return match[1], int(match[2] or 1)


def parse_accelerators(where: str, value: object) -> tuple[str, int]:
    """`accelerators_of` an option that the error names."""
    try:
        return accelerators_of(value)
    except ValueError as error:
        raise BadInputError(f"{where} is {one_line(value):.40}; {error}") from None


def device_resource(kind: str) -> str:
    """The Kubernetes resource of an accelerator, by its vendor's plugin: nvidia.com/gpu."""
    from trimtab.catalog import accelerator
    from trimtab.engines import DEVICE_RESOURCES

    known = accelerator(kind)
    if known.vendor not in DEVICE_RESOURCES:
        raise BadInputError(f"no Kubernetes resource is known for {known.name} by {known.vendor}")
    return DEVICE_RESOURCES[known.vendor]


def is_device_resource(name: str) -> bool:
    """Whether a name in a container's resources is that of an accelerator."""
    from trimtab.engines import DEVICE_RESOURCES

    return name in DEVICE_RESOURCES.values()
