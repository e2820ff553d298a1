"""What gradient-boosted trees make of the same jobs: who submits, how large, what the last ones took."""

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LAST = 20  # ended jobs behind the features
_LATEST = 5


def lightgbm_errors(submitted: Floats, seconds: Floats, tenants: Sequence[str], gpus: Floats) -> Floats:
    """Absolute log errors of every job at arrival, by trees that saw what ended before the middle came."""
    from lightgbm import LGBMRegressor

    features = _features(submitted, seconds, tenants, gpus)
    known = submitted + seconds <= submitted[len(submitted) // 2]
    trees = LGBMRegressor(
        objective="l1", n_estimators=150, learning_rate=0.08, random_state=0, n_jobs=1, verbose=-1
    )
    trees.fit(features[known], np.log(seconds[known]), categorical_feature=[0])
    error: Floats = np.abs(np.asarray(trees.predict(features)) - np.log(seconds))
    return error


def _features(submitted: Floats, seconds: Floats, tenants: Sequence[str], gpus: Floats) -> Floats:
    """Tenant, size, hour of the day, and what the tenant's last jobs took, of this size and of any."""
    codes = {tenant: code for code, tenant in enumerate(sorted(set(tenants)))}
    rows = np.full((len(seconds), 7), np.nan)
    rows[:, 0] = [codes[tenant] for tenant in tenants]
    rows[:, 1], rows[:, 2] = gpus, submitted % 86_400 / 3600
    ended = submitted + seconds
    order, next_end = np.argsort(ended, kind="stable"), 0
    last: dict[tuple[object, ...], deque[float]] = defaultdict(lambda: deque(maxlen=_LAST))
    for row in range(len(seconds)):
        while ended[order[next_end]] <= submitted[row]:
            job = order[next_end]
            last[tenants[job],].append(float(np.log(seconds[job])))
            last[tenants[job], gpus[job]].append(float(np.log(seconds[job])))
            next_end += 1
        for column, key in ((3, (tenants[row],)), (5, (tenants[row], gpus[row]))):
            if last[key]:
                recent = list(last[key])
                rows[row, column : column + 2] = np.median(recent[-_LATEST:]), np.median(recent)
    return rows
