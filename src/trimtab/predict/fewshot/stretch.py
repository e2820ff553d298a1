"""The rule from first principles: work takes longer on a smaller share of a CPU, waiting does not.

A run of T seconds that used C seconds of CPU on a share s (of at most one CPU, for one thread) waited for
something else during I = T - C/s. On a share s' it takes I + (T - I) s/s'. From two runs on, I and the work
are fitted to all of them; where the CPU is the same everywhere, the line through the known is taken.

A run that swaps waits for its own pages. With more memory that wait is gone, and only the work is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.predictor import Rows, known_log_seconds
from trimtab.predict.fewshot.rules import Interpolation
from trimtab.predict.fewshot.schema import Array

_ONE_THREAD = 1.0  # CPU
_LEAST = 1e-9  # s
# What a run that swaps looks like: it is idle most of the time, gives the CPU away again and again, and holds
# a good part of its memory. Programs that wait for others hold little, or give the CPU away less often.
_SWAPPING_CPU = 0.5  # of its share, at most
_SWAPPING_SWITCHES = 300.0  # per second, at least
_SWAPPING_MEMORY = 0.3  # of its limit, at least


@dataclass(frozen=True, slots=True)
class Stretch:
    """Idle time stays, CPU time stretches with the share."""

    name: str = "CPU share"

    def fit(self, cases: Sequence[Case]) -> "Stretch":
        return self

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(stretched(case, known))


def stretched(case: Case, known: Rows) -> Array:
    """Log seconds under every configuration."""
    known = np.sort(known)
    log_seconds = known_log_seconds(case, known)
    share = cpu_share(case)
    if np.isnan(share).any() or np.ptp(share) == 0:
        line = np.log(Interpolation().predict(case, known))
        return _relieved(case, int(known[np.argmax(case.setting("memory_bytes")[known])]), share, line)
    if len(known) > 1 and np.ptp(share[known]) > 0:
        return _fitted(np.exp(log_seconds), share[known], share)
    each = [stretched_from(case, row, share) for row in known.tolist()]
    return np.asarray(np.mean(each, axis=0))


def stretched_from(case: Case, row: int, share: Array) -> Array:
    """The same from the one run in that row."""
    seconds, used = case.seconds[row], _used(case, row)
    idle = max(0.0, seconds - used * seconds / share[row]) if used > 0 else 0.0
    stretched = np.log(idle + max(seconds - idle, _LEAST) * share[row] / share)
    return _relieved(case, row, share, stretched)


def _relieved(case: Case, row: int, share: Array, log_seconds: Array) -> Array:
    """The same, but without waiting under configurations with more memory than that row's, if it swapped."""
    used, memory = _used(case, row), case.setting("memory_bytes")
    swaps = (
        0 < used < _SWAPPING_CPU * share[row]
        and case.metric("context_switches")[row] > _SWAPPING_SWITCHES
        and case.metric("memory_fraction")[row] > _SWAPPING_MEMORY
    )
    work = np.log(max(used * case.seconds[row], _LEAST)) - np.log(share)
    return np.where(swaps & (memory > memory[row]), work, log_seconds)


def _used(case: Case, row: int) -> float:
    """CPU seconds per second, zero where unknown."""
    return float(np.nan_to_num(case.metric("cpu_user")[row]) + np.nan_to_num(case.metric("cpu_system")[row]))


def cpu_share(case: Case) -> Array:
    """How much of one CPU a single thread gets under each configuration."""
    return np.minimum(case.setting("cpus"), _ONE_THREAD)


def _fitted(seconds: Array, known_share: Array, share: Array) -> Array:
    """Idle time and work, neither negative, by least squares of the relative errors."""
    constant, slope = 1.0 / seconds, 1.0 / (known_share * seconds)
    (idle, work), *_ = np.linalg.lstsq(np.column_stack([constant, slope]), np.ones_like(seconds), rcond=None)
    if idle < 0 or work < 0:
        # The best without one of them: the other alone, whichever leaves less.
        alone = [(constant.sum() / (constant @ constant), 0.0), (0.0, slope.sum() / (slope @ slope))]
        idle, work = min(
            alone, key=lambda pair: float(((pair[0] * constant + pair[1] * slope - 1) ** 2).sum())
        )
    return np.asarray(np.log(np.maximum(idle + work / share, _LEAST)))
