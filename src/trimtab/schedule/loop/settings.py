"""How the scheduler's loop goes."""

from dataclasses import dataclass

from trimtab.schedule.loop.stopping import PATIENCE


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """`round` is how often a policy decides when nothing happens, `look` how often it is looked whether
    something has, and `grace` how long a run may take to end after SIGTERM; all in seconds. A run that saves
    is waited for `patience` times as long as its job says that takes. Who is stirred all the time rests
    `rest` times as long as a round computed, so that the larger the queue, the more is decided at once.
    """

    round: float = 10.0
    look: float = 0.5
    grace: float = 10.0
    patience: float = PATIENCE
    rest: float = 20.0
