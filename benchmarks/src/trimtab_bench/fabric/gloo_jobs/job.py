"""A training script and how its ranks find one another."""

from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.core import BadInputError
from trimtab.fabric.topology import WorkerDevice


@dataclass(frozen=True, slots=True)
class Job:
    """A command that is started once for each rank, as `torchrun` would, and prints lines of its steps.

    Ranks meet at `address`, that of the first one, and talk through the network device `device`. A job with a
    `checkpoint` file is told to write it every so many steps and goes on from it.
    """

    words: tuple[str, ...]
    ranks: int = 2
    address: str = "127.0.0.1"
    device: str = "lo"
    checkpoint: Path | None = None
    every: int = 10
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.words:
            raise BadInputError("a job without a command; name the script to start")
        if self.ranks < 1 or self.every < 1:
            raise BadInputError(
                f"{self.ranks} ranks, a checkpoint every {self.every} steps; both are at least 1"
            )

    def bound_to(self, first: WorkerDevice) -> "Job":
        """The same over the fabric: ranks meet at the first one's device, and each talks through its own."""
        return replace(self, address=str(first.address.ip), device=first.name)

    def command(self) -> list[str]:
        """As it is started, on every rank."""
        if self.checkpoint is None:
            return list(self.words)
        return [*self.words, "--checkpoint", str(self.checkpoint), "--every", str(self.every)]

    def variables(self, rank: int, port: int) -> dict[str, str]:
        """What tells a rank who it is; `port` is where the first one waits for the others."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": self.device,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
