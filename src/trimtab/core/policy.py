"""How a decision is asked for."""

from typing import Protocol, TypeVar

from trimtab.core.decision import Decision

State = TypeVar("State", contravariant=True)


class Policy(Protocol[State]):
    """A pure function of the state it is shown; clock and random source are part of that state."""

    def decide(self, state: State) -> Decision: ...
