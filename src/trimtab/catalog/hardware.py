"""Facts about accelerators by name, and the calibration: constants that were measured."""

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

    `peak` is dense FLOP/s by number format (operations for int8), `memory` bytes, `memory_bandwidth` B/s,
    `power` watts (None where unpublished). `multiprocessors` and `cache` (bytes, second level) are None for
    devices that are no GPUs. `constants` are its entry in the calibration, empty if there is none.
    `evidence` lists who measured steps on it, how many, and when. `trains` is False for devices that only
    infer.
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
    multiprocessors: int | None = None
    cache: float | None = None
    evidence: tuple[str, ...] = ()

    @property
    def rests_on(self) -> str:
        """Evidence behind estimates for the device, in words."""
        return "; ".join(self.evidence) or "prior only: laws of measured devices and its data sheet"

    @property
    def runs_plain_pytorch(self) -> bool:
        """Whether a script written for PyTorch on CUDA runs unchanged: on CUDA itself, or on ROCm."""
        return self.vendor in ("NVIDIA", "AMD")


@dataclass(frozen=True, slots=True)
class LinkConstants:
    """Bandwidths (B/s) and latencies (s) of links that neither the user nor an accelerator's facts give."""

    network_bandwidth: float
    """Between machines."""
    network_latency: float
    direct_latency: float
    """Of NVLink and other links between devices that do not pass the host."""
    pcie_bandwidth: float
    """Of 16 lanes of PCIe 3; doubled for devices of each year in `pcie_doubled_in` and later."""
    pcie_latency: float
    pcie_doubled_in: tuple[int, ...]
    loopback_bandwidth: float
    """Between two processes on the CPUs of one machine."""
    loopback_latency: float


@dataclass(frozen=True, slots=True)
class StageConstants:
    """Constants of the memory of a model's stage: bytes of library workspaces, the rest ratios."""

    base_memory: float
    half_saved: float
    """Activations kept under 16-bit autocast relative to fp32."""
    half_conv_saved: float
    """`half_saved` of convolutions."""
    results_alive: float
    """Largest results of a stage alive at once: one, and its gradient."""


@cache
def link_constants() -> LinkConstants:
    """The calibration's entry `links`."""
    entry = _calibration()["links"]
    return LinkConstants(**{**entry, "pcie_doubled_in": tuple(entry["pcie_doubled_in"])})


@cache
def stage_constants() -> StageConstants:
    """The calibration's entry `stages`."""
    return StageConstants(**_calibration()["stages"])


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator with known facts, in the order of the data file: by vendor, then age."""
    return tuple(_by_name().values())


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`: its own name or an alias, in any case, spaces and hyphens alike."""
    if (known := find_accelerator(name)) is not None:
        return known
    spellings = _spellings()
    near = dict.fromkeys(spellings[s] for s in get_close_matches(_fold(name), spellings, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "see `trimtab catalog ls --accelerators`"
    raise NotFoundError(f'the catalog has no accelerator called "{name}"; {hint}')


def find_accelerator(name: str) -> Accelerator | None:
    """`accelerator`, but None for an unknown name."""
    canonical = _spellings().get(_fold(name))
    return _by_name()[canonical] if canonical is not None else None


def _fold(name: str) -> str:
    """A name in lower case with hyphens and without the brand: rtx-4090 for "NVIDIA GeForce RTX 4090"."""
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
def traced_laws() -> Mapping[str, Any]:
    """Laws of traced steps with the factors of every measured device.

    Empty if none come with this version.
    """
    path = files("trimtab.catalog").joinpath("laws.json")
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


@cache
def _calibration() -> dict[str, dict[str, Any]]:
    text = files("trimtab.catalog").joinpath("calibration.json").read_text("utf-8")
    return dict(json.loads(text))


@cache
def _by_name() -> dict[str, Accelerator]:
    tables = tomllib.loads(files("trimtab.catalog").joinpath("accelerators.toml").read_text("utf-8"))
    evidence = traced_laws().get("evidence", {})
    return {
        name: Accelerator(
            name=name,
            vendor=facts["vendor"],
            aliases=tuple(facts["aliases"]),
            year=facts["year"],
            peak={k: parse_flop_rate(v) for k, v in facts["peak"].items()},
            memory=parse_bytes(facts["memory"]),
            memory_bandwidth=parse_bandwidth(facts["memory_bandwidth"]),
            interconnect=Interconnect(
                facts["interconnect"]["name"], parse_bandwidth(facts["interconnect"]["bandwidth"])
            ),
            power=float(facts["power"]) if "power" in facts else None,
            constants=dict(measured_constants(name)),
            trains=facts.get("trains", True),
            multiprocessors=facts.get("multiprocessors"),
            cache=parse_bytes(facts["cache"]) if "cache" in facts else None,
            evidence=tuple(evidence.get(name, ())),
        )
        for name, facts in tables.items()
    }
