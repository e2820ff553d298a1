"""A workload on a configuration, to be written as a job file: its machine, name, limits and header."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from trimtab.catalog import accelerator
from trimtab.core import (
    GIB,
    BadInputError,
    Configuration,
    Offer,
    Workload,
    format_duration,
    format_money,
    format_price,
)

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
    """Maker of the offer's accelerators; None if it has none."""
    return accelerator(offer.accelerator).vendor if offer.accelerator and offer.accelerators else None


def default_image(offer: Offer) -> str:
    """A public image with PyTorch for the offer's devices."""
    maker = vendor(offer) or "NVIDIA"
    if maker not in _IMAGES:
        raise BadInputError(
            f"there is no default container image for {offer.accelerator}; name one that has it"
        )
    return _IMAGES[maker]


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


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


def to_yaml(*documents: Any) -> str:
    """`documents` as one YAML stream."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, explicit_start=False
    )


LIMIT_MARGIN = 2.0
"""How many times the expected run time a job may take before its target stops it."""

SHORTEST_LIMIT = 1800.0
"""Seconds; a limit from an estimate is never shorter: pulling an image or a dataset alone takes minutes."""

_NAME_LENGTH = 50
"""A label holds 63 characters; Kubernetes and Slurm append an index of their own."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A workload on a configuration, to be written down. Times in seconds, None where unknown."""

    workload: Workload
    configuration: Configuration
    expected_seconds: float | None = None
    max_seconds: float | None = None
    image: str | None = None
    profiled_batch: int | None = None  # samples per device and step that the command used when profiled

    def __post_init__(self) -> None:
        command = self.workload.command
        if not command or not command[0]:
            raise BadInputError(f"the workload {self.title!r} has no command to run; profile it first")
        if command[0].startswith("-"):
            raise BadInputError(f"the command starts with the option {command[0]!r} instead of a program")
        for label, seconds in (("expected", self.expected_seconds), ("longest", self.max_seconds)):
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise BadInputError(f"the {label} run time is {seconds} s; it should be a positive number")
        if self.image is not None and not re.fullmatch(r"[\w./:@-]+", self.image, re.ASCII):
            raise BadInputError(f'"{self.image}" is not the name of a container image')

    @property
    def title(self) -> str:
        """The workload's name on one line of printable characters."""
        text = "".join(c if c.isprintable() else " " for c in self.workload.name)
        return " ".join(text.split()) or "job"

    @property
    def name(self) -> str:
        """The workload's name as every target takes it: a DNS label that starts with a letter."""
        label = re.sub(r"[^a-z0-9]+", "-", self.workload.name.lower()).strip("-")
        if not label[:1].isalpha():
            label = f"job-{label}"
        return label[:_NAME_LENGTH].rstrip("-")

    @property
    def time_limit(self) -> int | None:
        """Whole seconds, a multiple of a minute, after which the target stops the job."""
        if self.max_seconds is not None:
            limit = self.max_seconds
        elif self.expected_seconds is not None:
            limit = max(SHORTEST_LIMIT, LIMIT_MARGIN * self.expected_seconds)
        else:
            return None
        return math.ceil(limit / 60) * 60

    def header(self, launch: str, notes: Iterable[str] = ()) -> list[str]:
        """Lines for a reader of the file; `launch` is the command that starts the job."""
        offer, configuration = self.configuration.offer, self.configuration
        devices = f"{offer.accelerators} {offer.accelerator}" if offer.accelerators else "no accelerator"
        lines = [
            f"{self.title} on {configuration.key}",
            f"{configuration.nodes} × {offer.instance} with {devices} each, "
            f"{configuration.batch_size} samples per replica and step, {format_price(configuration.price)} "
            f"in all ({'spot' if configuration.spot else 'on demand'}, prices of {offer.price_date})",
        ]
        if configuration.parallel.name:
            lines.append(f"{configuration.replicas} replicas of the model: {configuration.parallel.name}")
        if self.expected_seconds is not None:
            cost = format_money(self.expected_seconds * configuration.price)
            lines.append(f"Expected: {format_duration(self.expected_seconds)}, {cost}")
        if self.time_limit is not None:
            lines.append(f"Stopped after: {format_duration(self.time_limit)}")
        return [*lines, f"Launch: {launch}", *notes]


def comment(lines: Iterable[str]) -> str:
    """`lines` as comments of YAML and the shell."""
    return "".join(f"# {line}\n" for line in lines)
