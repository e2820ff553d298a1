"""Joins Google Cloud's accelerators, which are priced apart, with their machines."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from trimtab.catalog.pricelist import PriceRow

_FIXED_HOSTS: dict[tuple[str, int], tuple[str, ...]] = {
    **{("A100", n): (f"a2-highgpu-{n}g",) for n in (1, 2, 4, 8)},
    ("A100", 16): ("a2-megagpu-16g",),
    **{("A100-80GB", n): (f"a2-ultragpu-{n}g",) for n in (1, 2, 4, 8)},
    **{("H100", n): (f"a3-highgpu-{n}g",) for n in (1, 2, 4)},
    ("H100", 8): ("a3-highgpu-8g", "a3-edgegpu-8g"),
    ("H100-MEGA", 8): ("a3-megagpu-8g",),
    ("H200", 8): ("a3-ultragpu-8g",),
    ("B200", 8): ("a4-highgpu-8g",),
    ("GB200", 4): ("a4x-highgpu-4g",),
    ("L4", 1): tuple(f"g2-standard-{n}" for n in (4, 8, 12, 16, 32)),
    ("L4", 2): ("g2-standard-24",),
    ("L4", 4): ("g2-standard-48",),
    ("L4", 8): ("g2-standard-96",),
    **{("RTXPRO6000", n): (f"g4-standard-{48 * n}",) for n in (1, 2, 4, 8)},
}
"""Machine types that come with a fixed number of accelerators."""

_ATTACHED = ("K80", "P4", "P100", "T4", "V100")
"""Accelerators that attach to an N1 machine of any size; the offers have eight vCPUs for each."""

_ACCELERATOR_MACHINES = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
"""Machine types that cannot be rented without their accelerators, although they have a price of their own."""

_TPU_HOSTS = {
    "v2-8": (4, 96, 334),
    "v3-8": (4, 96, 334),
    "v4-8": (4, 240, 407),
    "v5litepod-1": (1, 24, 48),
    "v5litepod-4": (4, 112, 192),
    "v5litepod-8": (8, 224, 384),
    "v5p-8": (4, 208, 448),
    "v6e-1": (1, 44, 176),
    "v6e-4": (4, 180, 720),
    "v6e-8": (8, 180, 1440),
}
"""TPU slices on one host: chips, vCPUs and GiB of the host, which the slice's price includes."""


def priced_with_hosts(rows: Iterable[PriceRow]) -> tuple[list[PriceRow], Counter[str]]:
    """Rows that can be rented, and numbers of left-out rows by reason."""
    listed = list(rows)
    hosts = {(row.region, row.instance): row for row in listed if row.instance}
    offers: list[PriceRow] = []
    left_out: Counter[str] = Counter()
    for row in listed:
        if row.instance:
            if row.accelerator or not row.instance.startswith(_ACCELERATOR_MACHINES):
                offers.append(row)
        elif row.accelerator.startswith("tpu-"):
            slice_row = _tpu_slice(row)
            offers += [slice_row] if slice_row else []
            left_out["TPU slices of several hosts"] += slice_row is None
        else:
            count = int(row.accelerators)
            machines = _FIXED_HOSTS.get((row.accelerator, count), ())
            if row.accelerator in _ATTACHED:
                machines = (f"n1-standard-{8 * count}",)
            keys = [(row.region, machine) for machine in machines]
            paired = [_together(hosts[key], row) for key in keys if key in hosts]
            offers += paired
            left_out["accelerators without a known machine"] += not paired
    return offers, +left_out


def _together(host: PriceRow, accelerator: PriceRow) -> PriceRow:
    spot = None
    if host.spot_price is not None and accelerator.spot_price is not None:
        spot = host.spot_price + accelerator.spot_price
    attached = f"+{accelerator.accelerator}x{int(accelerator.accelerators)}"
    return replace(
        host,
        instance=host.instance + (attached if accelerator.accelerator in _ATTACHED else ""),
        accelerator=accelerator.accelerator,
        accelerators=accelerator.accelerators,
        price=host.price + accelerator.price,
        spot_price=spot,
    )


def _tpu_slice(row: PriceRow) -> PriceRow | None:
    """A TPU slice as an instance with chips as its accelerators; None if it spans several hosts."""
    match = re.fullmatch(r"tpu-((v\w+)-\d+)", row.accelerator)
    if match is None or match[1] not in _TPU_HOSTS:
        return None
    chips, vcpus, memory = _TPU_HOSTS[match[1]]
    return replace(
        row,
        instance=row.accelerator,
        accelerator=f"tpu-{match[2]}",
        accelerators=float(chips),
        vcpus=float(vcpus),
        memory=float(memory),
    )
