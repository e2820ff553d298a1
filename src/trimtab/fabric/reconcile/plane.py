"""What every data plane can do, whatever forwards the frames."""

from typing import Protocol

from trimtab.core import TrimtabError
from trimtab.fabric.reconcile.changes import Changes, Table


class PlaneError(TrimtabError):
    """A data plane could not be read or changed; the sentence says why and what would help."""


class DataPlane(Protocol):
    """Takes workers' frames to the hosts of their MACs. Calls may be repeated, and may raise TrimtabError."""

    @property
    def name(self) -> str:
        """As a user asks for it."""

    @property
    def devices(self) -> frozenset[str]:
        """What it lives on, to hear about when it changes."""

    def prepare(self) -> int:
        """Put up what it consists of, and answer how many of its parts were not as they should be."""

    def entries(self) -> Table:
        """What it does at this moment, read back from where it does it."""

    def apply(self, changes: Changes) -> None:
        """Do that from now on."""

    def trust(self, seconds: float) -> None:
        """What it has is right for so long; past that it is better not used."""

    def remove(self) -> None:
        """Take it away; frames go through the bridge and its tunnel again."""

    def close(self) -> None:
        """Let go of it, and leave it as it is."""
