"""The data plane where there is no other: the bridge and the tunnel, which zebra fills by itself."""

from trimtab.fabric.reconcile.changes import Changes, Table


class KernelPlane:
    """The kernel did what is to be done when zebra told it; this only keeps count."""

    name = "kernel"
    devices = frozenset[str]()

    def __init__(self) -> None:
        self._held = dict[bytes, bytes]()

    def prepare(self) -> int:
        """It is there with the tunnel."""
        return 0

    def entries(self) -> Table:
        """What was heard of."""
        return dict(self._held)

    def apply(self, changes: Changes) -> None:
        """Take note."""
        self._held.update(changes.put)
        for mac in changes.forget:
            self._held.pop(mac, None)

    def trust(self, seconds: float) -> None:
        """It follows zebra without us."""

    def remove(self) -> None:
        """It goes with the tunnel."""

    def close(self) -> None:
        """There is nothing to let go of."""
