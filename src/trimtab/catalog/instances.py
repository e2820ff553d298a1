"""What price lists do not say about instances: network bandwidth, and known errors in published lists."""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

GBIT = 1e9 / 8
"""Bytes per second in one Gbit/s."""


@cache
def network_bandwidth(cloud: str, instance: str, vcpus: float) -> float:
    """Bytes per second an instance can send to its peers for good.

    From the vendor's documentation where the instance is listed; otherwise a cautious guess by vCPU count.
    """
    for pattern, gbit in _facts()["network"].get(cloud, {}).items():
        if fnmatchcase(instance, pattern):
            return float(gbit) * GBIT
    default = _facts()["default"]
    fitting = [gbit for least, gbit in zip(default["vcpus"], default["gbit"], strict=True) if vcpus >= least]
    return float(max(fitting, default=default["gbit"][0])) * GBIT


def corrected(
    cloud: str, instance: str, accelerator: str | None, accelerators: float
) -> tuple[str | None, float]:
    """The accelerator and its count, put right where published lists are known to be wrong."""
    correction: Mapping[str, Any] = _facts()["correction"].get(cloud, {}).get(instance, {})
    return correction.get("accelerator", accelerator), correction.get("accelerators", accelerators)


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(files("trimtab.catalog").joinpath("instances.toml").read_text("utf-8"))
