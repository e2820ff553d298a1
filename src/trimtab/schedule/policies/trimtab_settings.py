"""The weights of Trimtab's own policy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrimtabSettings:
    """What counts how much in the one objective."""

    crowd: float = 2.0
    """What the seconds that others wait count, against one's own."""
    remember: float = 0.1
    """How much of each round's prices goes into those that are remembered."""
    size: float = 0.2
    """How much longer jobs yield: twice as long is worth 2 to the minus this."""
    ageing: float = 0.15
    """How much older jobs gain: (1 + hours) to the power of this."""
    priority: float = 4.0
    """How many times more a second of one class of priority is worth than one of the class below."""
    urgency: float = 8.0
    """How much more it is worth, at most, as a hard deadline comes close; half of that for a soft one."""
    caution: float = 0.1
    """By how much more time than it needs a job with a deadline leaves spot nodes."""
    look: float = 300.0
    """Within how many seconds others may be stopped for it, and nodes found."""
    fairness: float = 0.5
    """How much a tenant gains that has less than its share: (share due / share had) to the power of this."""
    thrift: float = 0.0
    """Seconds somebody would wait to save a dollar; counts what is spent above the cheapest way."""
    explore: float = 0.3
    """What counts of the seconds that a job could save in shapes it may have only after smaller ones."""
    explore_most: float = 5.0
    """The most that trying more workers is worth per second."""
    fragments: float = 0.05
    """What a shape loses that leaves parts of nodes which fit hardly anybody."""
    loyalty: float = 0.03
    """How much less a round may be worth that changes less."""
    stay: float = 600.0
    """For how many seconds a job is expected to keep a shape."""
    stay_restarts: float = 4.0
    """The same, at least so many times its restart."""
    unknown: float = 1200.0
    """Seconds in the smallest shape that a job is believed to need while nothing is known."""
    unknown_restarts: float = 40.0
    """The same, at least so many times its restart: nobody starts slowly for a short job."""
    seconds: float = 0.5
    """The most the solver may take for a round."""
