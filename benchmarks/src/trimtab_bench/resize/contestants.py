"""Who is compared: what each would know from an earlier stretch of the same load, and begin with.

Everyone has the same history: an observed run of the same kind of load from another seed, without limits for
single containers. Limits that would exceed the application's cap are scaled down to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab.resize import POLICIES, CpuPeriod, CpuPolicy, Wishes, fair_limits
from trimtab_bench.resize.bundle import Limit
from trimtab_bench.resize.trial import EVERY, Array, Observed, Setting

MIB = 2**20
STATIC = {"static_0.75": 0.75, "static_1.0": 1.0, "static_1.5": 1.5}
CONTESTANTS = ("trimtab", "escra", "vpa", "autopilot", *STATIC)
_HISTORY = 600.0  # s that policies have seen before, by repeating what was observed
_LEAST_MEMORY = 64.0 * MIB  # that nobody gives less than: a container needs some of it to start
_VPA_LEAST = 250.0 * MIB  # its smallest recommendation of memory
_MARGIN = {"vpa": 0.15, "autopilot": 0.10}  # of memory, above the highest use seen


@dataclass(frozen=True, slots=True, eq=False)
class Contestant:
    """First limits, the policy that changes them if any, and the limit after the kernel has killed."""

    start: tuple[Limit, ...]
    policy: CpuPolicy | None = None
    again: Callable[[Limit], Limit] = lambda limit: limit


def contestant(name: str, setting: Setting, history: Observed) -> Contestant:
    """One of `CONTESTANTS`, who has seen that history."""
    peak, peak_memory = np.nanmax(history.used, axis=0), np.nanmax(history.memory, axis=0)
    if name in STATIC:
        cpus, memory = STATIC[name] * peak, STATIC[name] * peak_memory
        return Contestant(_limits(cpus, memory, setting))
    policy = POLICIES[name]()
    wanted = _after(policy, setting, np.nan_to_num(history.used))
    if policy.traps:
        return Contestant(tuple(Limit() for _ in setting.services), policy)
    memory = np.maximum(peak_memory * (1 + _MARGIN[name]), _VPA_LEAST if name == "vpa" else 0.0)
    return Contestant(_limits(wanted, memory, setting), policy, _more_after_a_kill)


def _after(policy: CpuPolicy, setting: Setting, used: Array) -> Array:
    """What the policy wants for everyone once it has seen the history."""
    everyone = np.arange(used.shape[1])
    pool, cap = np.zeros_like(everyone), np.array([setting.cpus])
    floor = np.full(len(everyone), 0.02)
    limit = fair_limits(np.full(len(everyone), setting.cpus / len(everyone)), floor, pool, cap)
    for period in range(round(_HISTORY / EVERY)):
        now = used[period % len(used)]
        seen = CpuPeriod(EVERY, everyone, pool, limit, now, now > limit, floor, cap)
        limit = fair_limits(Wishes.of(policy.wanted(seen)).cpus, floor, pool, cap)
    return limit


def _limits(cpus: Array, memory: Array, setting: Setting) -> tuple[Limit, ...]:
    memory = np.maximum(memory, _LEAST_MEMORY)
    fits = min(1.0, setting.cpus / float(np.sum(cpus)))
    fits_memory = min(1.0, setting.memory / float(np.sum(memory)))
    return tuple(Limit(float(c) * fits, float(m) * fits_memory) for c, m in zip(cpus, memory, strict=True))


def _more_after_a_kill(limit: Limit) -> Limit:
    """Both raise the limit of who was killed: by a fifth, or 100 MiB if that is more."""
    assert limit.memory is not None
    return Limit(limit.cpus, max(limit.memory * 1.2, limit.memory + 100 * MIB))
