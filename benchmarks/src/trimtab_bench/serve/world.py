"""What is in the store that is asked: how many of everything, whose they are and what their ids are."""

from dataclasses import dataclass

TENANTS = 20
DECISION_KINDS = ("resize", "schedule", "recommend", "partition", "tune")
SUBJECTS = 1_000
EVERYBODY = "*"

_ODD = 2_654_435_761  # times this, numbers are spread over all ids, and no two alike


@dataclass(frozen=True, slots=True)
class World:
    """How many jobs, decisions, events and profiles there are."""

    jobs: int
    decisions: int
    events: int
    profiles: int


FULL = World(jobs=10_000, decisions=1_000_000, events=200_000, profiles=200)
QUICK = World(jobs=1_000, decisions=20_000, events=5_000, profiles=40)


def tenant(number: int) -> str:
    """The tenant that the thing of a number belongs to: each in turn."""
    return f"team-{number % TENANTS:02}"


def decision_id(number: int) -> str:
    """As random as real ones look to an index."""
    return f"{number * _ODD % 2**48:012x}"


def job_id(number: int) -> str:
    """The same for a job."""
    return f"{number * _ODD % 2**32:08x}"


def profile_id(number: int) -> str:
    """The same for a profile."""
    return f"{(number + 1) * _ODD % 2**48:012x}"


def decision_kind(number: int) -> str:
    """Of which kind a decision is; every tenant has all kinds."""
    return DECISION_KINDS[number // TENANTS % len(DECISION_KINDS)]


def subject(number: int) -> str:
    """What a decision is about; every subject is one tenant's."""
    return f"job-{number % SUBJECTS}"


def nth_of(whose: int | None, place: float, count: int) -> int:
    """The number of the thing at a place from 0 (the oldest) to 1 (the newest) among one tenant's.

    There are `count` of all tenants together, whose things these are where `whose` is None.
    """
    if whose is None:
        return min(count - 1, int(place * count))
    own = (count - whose + TENANTS - 1) // TENANTS
    return whose + TENANTS * min(own - 1, int(place * own))


def nearly_last(whose: int | None, left: int, count: int) -> int:
    """The number of the thing before which there are `left` older ones, or half of all where that is less."""
    step = 1 if whose is None else TENANTS
    return (whose or 0) + step * min(left, count // step // 2)
