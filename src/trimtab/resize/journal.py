"""Grants and refusals of memory for the ledger; written by a thread of its own, so that nobody waits."""

import uuid
from collections.abc import Callable
from typing import Self

from trimtab.core import Answer, Clock, Decision, RealClock, format_bytes, format_duration
from trimtab.kernel import BackgroundWriter
from trimtab.resize.agent import Grant

_RULE = "rule:grant from the pool"


class Journal:
    """Give it to an agent as `notice`; everything is recorded when the context ends."""

    def __init__(self, record: Callable[[Decision], None], clock: Clock | None = None) -> None:
        self._clock = clock or RealClock()
        self._aside = BackgroundWriter(record, "a grant is not in the ledger")

    def __call__(self, grant: Grant) -> None:
        """Remember a grant."""
        self._aside.put(decision(grant, self._clock.now()))

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._aside.__exit__(*raised)


def decision(grant: Grant, now: float) -> Decision:
    """A container ran out of memory: what was done about it."""
    killed = grant.after <= grant.before
    done = "none was left, so the kernel killed" if killed else f"{format_bytes(grant.after)} since then"
    answer = Answer(_RULE, {"memory_bytes": round(grant.after), "killed": killed})
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=now,
        kind="resize",
        subject=grant.path,
        action=answer.action,
        estimates={},
        chosen_by=_RULE,
        rule=answer,
        model=None,
        alternatives=(),
        reason=f"ran out of {format_bytes(grant.before)} in the pool {grant.pool}: {done}, "
        f"after {format_duration(grant.seconds)}",
    )
