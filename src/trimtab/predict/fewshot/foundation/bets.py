"""A test for a change that may be looked at after every observation: betting against "nothing has changed".

Each observation multiplies what is held by how much likelier a change makes it, and before each a fresh unit
is staked, so that a change is found however late it comes. Without a change the game is fair or worse: what
is held after n observations is at most n on average, and the chance that it ever reaches `LIMIT` within them
at most n / LIMIT, however often one looks. A test with a fixed level has no such bound when it is repeated.
"""

from collections.abc import Sequence

import numpy as np

from trimtab.predict.fewshot import Array

LIMIT = 2000.0

_CHANGES = 40  # that are bet on at once, with equal parts of the stake


def rate_bets(seen: Sequence[bool], rate: float) -> list[Array]:
    """Bets that something happens more often than at this rate, one for every higher rate on a grid."""
    higher = rate + (1 - rate) * (np.arange(_CHANGES) + 0.5) / _CHANGES
    return [higher / rate if each else (1 - higher) / (1 - rate) for each in seen]


def rank_bets(rank: int, count: int) -> Array:
    """Bets that ranks are high; without a change every rank from 1 to `count` is as likely as another."""
    powers = np.geomspace(1.1, 30.0, _CHANGES)
    return np.asarray(count * ((rank / count) ** powers - ((rank - 1) / count) ** powers))


def alarms(bets: Sequence[Array]) -> list[slice]:
    """Where the limit was reached, each with the observations that most was won in; then it begins anew."""
    found: list[slice] = []
    held, begun = np.zeros(_CHANGES), 0
    for number, each in enumerate(bets):
        held = (held + 1.0) * each
        if held.mean() >= LIMIT:
            won = np.cumprod(bets[begun : number + 1][::-1], axis=0).mean(axis=1)
            found.append(slice(number - int(won.argmax()), number + 1))
            held, begun = np.zeros(_CHANGES), number + 1
    return found
