"""How long a prediction from few runs takes: loading the weights, then a hundred sizes nobody measured."""

import time
from collections.abc import Callable

from trimtab.predict import predict, shipped_foundation

_REPEATS = 7
_SIZES = tuple(f"{size}MB" for size in range(130, 3130, 30))
_RUN = {"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "cpu_system": "4ms", "memory_used": "80MB"}


def prediction_speed() -> dict[str, float]:
    """Seconds, the best of several: other work on the machine only ever adds."""
    foundation = shipped_foundation()
    told = {"application": "measured once", "environment": "lambda", "observations": [_RUN]}
    return {
        "load_s": _best(shipped_foundation),
        "hundred_sizes_s": _best(lambda: predict(told, _SIZES, foundation)),
    }


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
