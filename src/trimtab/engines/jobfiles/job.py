"""What a job file says, whatever the target: the workload, its configuration, its limits and its header."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.core import BadInputError, Configuration, Workload, format_duration, format_money, format_price

LIMIT_MARGIN = 2.0
"""How many times the expected run time a job may take before its target stops it."""

SHORTEST_LIMIT = 1800.0
"""Seconds; a limit from an estimate is never shorter: pulling an image or a dataset alone takes minutes."""

_NAME_LENGTH = 50
"""A label holds 63 characters; Kubernetes and Slurm append an index of their own."""


@dataclass(frozen=True, slots=True)
class Job:
    """A workload on a configuration, to be written down. Times in seconds, None where unknown."""

    workload: Workload
    configuration: Configuration
    expected_seconds: float | None = None
    max_seconds: float | None = None
    image: str | None = None

    def __post_init__(self) -> None:
        command = self.workload.command
        if not command or not command[0]:
            raise BadInputError(f"the workload {self.title!r} has no command to run; profile it first")
        if command[0].startswith("-"):
            raise BadInputError(f"the command starts with the option {command[0]!r} instead of a program")
        for what, seconds in (("expected", self.expected_seconds), ("longest", self.max_seconds)):
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise BadInputError(f"the {what} run time is {seconds} s; it should be a positive number")
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
        """What a reader of the file should know, line by line; `launch` is the command that starts it."""
        offer, configuration = self.configuration.offer, self.configuration
        devices = f"{offer.accelerators} {offer.accelerator}" if offer.accelerators else "no accelerator"
        lines = [
            f"{self.title} on {configuration.key}",
            f"{configuration.nodes} × {offer.instance} with {devices} each, "
            f"{configuration.batch_size} samples per device and step, {format_price(configuration.price)} "
            f"in all ({'spot' if configuration.spot else 'on demand'}, prices of {offer.price_date})",
        ]
        if self.expected_seconds is not None:
            cost = format_money(self.expected_seconds * configuration.price)
            lines.append(f"Expected: {format_duration(self.expected_seconds)}, {cost}")
        if self.time_limit is not None:
            lines.append(f"Stopped after: {format_duration(self.time_limit)}")
        return [*lines, f"Launch: {launch}", *notes]


def comment(lines: Iterable[str]) -> str:
    """`lines` as comments of YAML and the shell."""
    return "".join(f"# {line}\n" for line in lines)
