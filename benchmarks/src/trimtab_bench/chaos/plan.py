"""The schedule of faults: a function of the seed, the store and the length of the run."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

STORES = ("sqlite", "postgresql")
FAULTS_PER_MINUTE = 12

KILL, STOP, CLOCK, DISK, DATABASE = "kill", "stop", "clock", "disk", "database"

SERVER, WRITER, SCHEDULER, STARTER = "server", "writer", "scheduler", "starter"
"""Processes of `trimtab up`; the starter forks the supervisors of runs."""
SUPERVISOR, WORKER = "supervisor", "worker"
"""Processes of a run; a supervisor's kill hits any subset of the run's supervisors."""
RUN, MACHINE = "run", "machine"
"""Targets of a kill: a worker with its supervisors; all processes of the server and of its runs."""
AGENT, SWITCH, AGENTS = "agent", "switch", "agents"
"""The resize agent; a process that it started; any subset of them all."""

IMMEDIATE, POWER = "immediate", "kill"
"""Ways to restart the database: an immediate shutdown, and SIGKILL of its first process."""

_DECK: Mapping[tuple[str, str], int] = {
    (KILL, SERVER): 3,
    (KILL, WRITER): 2,
    (KILL, SCHEDULER): 3,
    (KILL, STARTER): 1,
    (KILL, SUPERVISOR): 3,
    (KILL, WORKER): 3,
    (KILL, RUN): 2,
    (KILL, MACHINE): 1,
    (KILL, AGENT): 2,
    (KILL, SWITCH): 1,
    (KILL, AGENTS): 3,
    (STOP, SERVER): 2,
    (STOP, WRITER): 1,
    (STOP, SCHEDULER): 3,
    (STOP, SUPERVISOR): 1,
    (STOP, WORKER): 1,
    (STOP, AGENT): 2,
    (STOP, SWITCH): 1,
    (CLOCK, ""): 4,
    (DISK, ""): 2,
    (DATABASE, IMMEDIATE): 2,
    (DATABASE, POWER): 2,
}
_ABSENT = {"sqlite": (DATABASE,), "postgresql": (WRITER,)}
"""Kinds and targets that a store does not have: writes to PostgreSQL need no process of their own."""

_SECONDS = {STOP: (0.5, 8.0), DISK: (2.0, 8.0), DATABASE: (0.0, 4.0), KILL: (4.0, 7.0)}
_OFFSETS = (5, 60, 600, 3600, 86_400)  # s


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault `at` seconds after the start. `choice`, from 0 to 1, selects among the candidates.

    `seconds` is how long it lasts: of a process that is stopped, a full disk, a database that is down, an
    agent that is dead. `offset` is how far a clock is from the machine's own, in seconds.
    """

    at: float
    kind: str
    target: str
    seconds: float
    choice: float
    offset: int = 0


def fault_plan(seed: int, store: str, seconds: float) -> list[InjectedFault]:
    """Faults in order; every kind comes as often as in the deck, in random order."""
    dice = random.Random(f"{seed} {store}")
    apart = 60.0 / FAULTS_PER_MINUTE
    cards = _cards(dice, store)
    return [
        _fault(dice, (number + dice.random()) * apart, *next(cards)) for number in range(int(seconds / apart))
    ]


def _fault(dice: random.Random, at: float, kind: str, target: str) -> InjectedFault:
    low, high = _SECONDS.get(kind, (0.0, 0.0))
    lasts, choice = dice.uniform(low, high), dice.random()
    offset = dice.choice((-1, 1)) * dice.choice(_OFFSETS) if kind == CLOCK else 0
    return InjectedFault(round(at, 3), kind, target, round(lasts, 3), choice, offset)


def _cards(dice: random.Random, store: str) -> Iterator[tuple[str, str]]:
    deck = [card for card, count in _DECK.items() for _ in range(count) if not {*card} & {*_ABSENT[store]}]
    while True:
        dice.shuffle(deck)
        yield from deck
