"""A workload, an instance type that can be rented, and a configuration that runs the one on the other."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class Kind(StrEnum):
    """Purpose of a workload."""

    TRAINING = "training"
    INFERENCE = "inference"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Workload:
    """A command to run. `deadline` is in seconds from submission; a higher `priority` goes first."""

    name: str
    kind: Kind = Kind.TRAINING
    tenant: str = "default"
    priority: int = 0
    deadline: float | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type in a region, with the price it had on `price_date`. Prices are dollars per second.

    `network` is the instance's bandwidth to its peers in bytes per second, one direction.
    """

    cloud: str
    region: str
    instance: str
    vcpus: float
    memory: float
    accelerator: str | None
    accelerators: int
    price: float
    spot_price: float | None
    network: float
    price_date: date

    @property
    def key(self) -> str:
        """The offer's name: "aws/us-east-1/p5.48xlarge"."""
        return f"{self.cloud}/{self.region}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way to run a workload: an offer, how many nodes of it, samples per device and step, spot or not."""

    offer: Offer
    nodes: int
    batch_size: int
    spot: bool

    @property
    def devices(self) -> int:
        """How many workers share the data: every accelerator, or every node where there is none."""
        return self.nodes * max(1, self.offer.accelerators)

    @property
    def price(self) -> float:
        """Dollars per second for all nodes."""
        spot = self.offer.spot_price
        return self.nodes * (spot if self.spot and spot is not None else self.offer.price)

    @property
    def key(self) -> str:
        """The configuration's name: "aws/us-east-1/p5.48xlarge x2 b64 spot"."""
        return f"{self.offer.key} x{self.nodes} b{self.batch_size}{' spot' if self.spot else ''}"
