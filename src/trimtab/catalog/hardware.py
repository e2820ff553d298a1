"""Accelerators as facts: what each is made of, by the name people use for it."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from trimtab.core import NotFoundError, parse_bandwidth, parse_bytes, parse_flop_rate

FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
"""Number formats a peak rate may be given for, widest first."""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The fastest link inside a machine; `bandwidth` is all one device can send, one direction, in B/s."""

    name: str
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device as its vendor publishes it.

    `peak` is dense FLOP/s by number format (operations for int8), `memory` bytes, `memory_bandwidth` bytes
    per second, `power` watts (None where unpublished). `constants` are what measurements on the device
    taught an estimator; empty where nobody has measured it. `trains` is False for devices that only infer.
    """

    name: str
    vendor: str
    aliases: tuple[str, ...]
    year: int
    peak: Mapping[str, float]
    memory: float
    memory_bandwidth: float
    interconnect: Interconnect
    power: float | None
    constants: Mapping[str, Any]
    trains: bool = True

    @property
    def runs_plain_pytorch(self) -> bool:
        """Whether a script written for PyTorch on CUDA runs unchanged: on CUDA itself, or on ROCm."""
        return self.vendor in ("NVIDIA", "AMD")


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator with known facts, in the order of the data file: by vendor, then age."""
    return tuple(_by_name().values())


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`: its own name or an alias, in any case, spaces and hyphens alike."""
    known = find_accelerator(name)
    if known is not None:
        return known
    spellings = _spellings()
    near = dict.fromkeys(spellings[s] for s in get_close_matches(_fold(name), spellings, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "see `trimtab catalog ls --accelerators`"
    raise NotFoundError(f'the catalog has no accelerator called "{name}"; {hint}')


def find_accelerator(name: str) -> Accelerator | None:
    """Like `accelerator`, but None for a name nobody has facts for."""
    canonical = _spellings().get(_fold(name))
    return _by_name()[canonical] if canonical is not None else None


def _fold(name: str) -> str:
    """One spelling for all: drivers say "NVIDIA GeForce RTX 4090" where people say RTX-4090."""
    folded = name.strip().lower().replace(" ", "-").replace("_", "-")
    for brand in ("nvidia-", "amd-", "instinct-", "geforce-", "tesla-"):
        folded = folded.removeprefix(brand)
    return folded


@cache
def _spellings() -> dict[str, str]:
    return {_fold(s): a.name for a in accelerators() for s in (a.name, *a.aliases)}


def measured_constants(name: str) -> Mapping[str, Any]:
    """The calibration's entry of an accelerator, or of "CPU" or "carried over"; empty if there is none."""
    return _calibration().get(name, {})


@cache
def _calibration() -> dict[str, dict[str, Any]]:
    text = files("trimtab.catalog").joinpath("calibration.json").read_text("utf-8")
    return dict(json.loads(text))


@cache
def _by_name() -> dict[str, Accelerator]:
    tables = tomllib.loads(files("trimtab.catalog").joinpath("accelerators.toml").read_text("utf-8"))
    return {name: _parse(name, table, measured_constants(name)) for name, table in tables.items()}


def _parse(name: str, table: Mapping[str, Any], constants: Mapping[str, Any]) -> Accelerator:
    link = table["interconnect"]
    return Accelerator(
        name=name,
        vendor=table["vendor"],
        aliases=tuple(table["aliases"]),
        year=table["year"],
        peak={k: parse_flop_rate(v) for k, v in table["peak"].items()},
        memory=parse_bytes(table["memory"]),
        memory_bandwidth=parse_bandwidth(table["memory_bandwidth"]),
        interconnect=Interconnect(link["name"], parse_bandwidth(link["bandwidth"])),
        power=float(table["power"]) if "power" in table else None,
        constants=dict(constants),
        trains=table.get("trains", True),
    )
