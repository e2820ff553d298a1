"""What a part of a model does and what it reads."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Held:
    """A weight or a buffer of the model: how many numbers, bytes, and whether it is trained."""

    numbers: int
    size: float
    trained: bool


@dataclass(slots=True)
class Work:
    """What one part of a model does in a forward pass: kernels, FLOP, bytes moved, weights read (by key)."""

    calls: float = 0.0
    flop: float = 0.0
    traffic: float = 0.0
    by_kind: dict[str, tuple[float, float]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)

    def add(self, kind: str, flop: float, traffic: float) -> None:
        """One more kernel."""
        before = self.by_kind.get(kind, (0.0, 0.0))
        self.by_kind[kind] = (before[0] + flop, before[1] + traffic)
        self.calls += 1
        self.flop += flop
        self.traffic += traffic

    def join(self, other: "Work") -> None:
        """Take over what another part does."""
        self.calls += other.calls
        self.flop += other.flop
        self.traffic += other.traffic
        self.held |= other.held
        for kind, (flop, traffic) in other.by_kind.items():
            before = self.by_kind.get(kind, (0.0, 0.0))
            self.by_kind[kind] = (before[0] + flop, before[1] + traffic)

    @property
    def kind(self) -> str:
        """What most of it is: by arithmetic, and by bytes where there is none."""
        return max(self.by_kind, key=lambda kind: self.by_kind[kind], default="view")
