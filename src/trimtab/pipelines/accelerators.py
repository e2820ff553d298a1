"""Accelerators as files ask for them: "T4:1" in ours, a device plugin's resource in Kubernetes."""

import re

from trimtab.core import BadInputError, one_line

_ASKED = re.compile(r"([A-Za-z][\w. -]{0,40}?)\s*(?::\s*(\d{1,3}))?")


def parse_accelerators(where: str, told: object) -> tuple[str, int]:
    """A kind and a number from "T4:1", "A100"; ("", 0) from "none"."""
    found = _ASKED.fullmatch(told.strip()) if isinstance(told, str) else None
    if found is None or (found[2] is not None and int(found[2]) == 0):
        raise BadInputError(
            f"{where} is {one_line(told):.40}; it should be a kind and a number such as T4:1, or none"
        )
    if found[1].lower() == "none":
        return "", 0
    return found[1], int(found[2] or 1)


def device_resource(kind: str) -> str:
    """What Kubernetes calls such devices: the resource its vendor's plugin offers, such as nvidia.com/gpu."""
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
