"""How long a round takes: `pytest -m benchmark -s tests/schedule/policies/test_speed.py` prints it."""

from collections.abc import Callable
from time import process_time

import numpy as np
import pytest

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, NodeGroup
from trimtab.schedule.policies import policy

RoundOf = Callable[..., JobColumns]
PARTS = tuple(NodeGroup(name, name, 240, 8, 96.0, 1e12) for name in "abc")
SIZES = (1, 2, 4, 8, *range(16, 144, 8))
CLUSTER = Cluster(PARTS, tuple(GangShape(group, size) for group in range(3) for size in SIZES))


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["fifo", "srtf", "priority", "edf", "las", "drf", "maxmin", "gavel"])
def test_a_round_of_2500_jobs_is_short(name: str, round_of: RoundOf) -> None:
    draw = np.random.default_rng(0)
    sizes = draw.choice([1, 1, 1, 2, 4, 8], 2500).tolist()
    rows = [
        {
            "id": f"job-{n}",
            "tenant": f"tenant-{n % 10}",
            "submitted": float(n),
            "least": size,
            "priority": 10.0 * (n % 3),
            "memory": 1e10,
            "deadline": 1e6 + n if n % 3 == 0 else np.inf,
            "remaining": draw.exponential(1e4) * size,
            "speed": np.array([1.0, 2.0, 3.0]) * draw.uniform(0.5, 1.5),
        }
        for n, size in enumerate(sizes)
    ]
    jobs = round_of(CLUSTER, rows)
    jobs.speed[CLUSTER.shape_workers != np.array(sizes)[:, None]] = 0.0
    chosen, clock, given = policy(name), SimulatedClock(), Allocation.nothing(len(jobs))
    took = []
    for _ in range(12):
        before = process_time()
        given = chosen.allocate(jobs, CLUSTER, given, clock)
        took.append(1e3 * (process_time() - before))
        clock.advance(360.0)
    runs = int((given.shape != WAITING).sum())
    print(f"\n{name}: {min(took[1:]):.1f} ms a round ({took[0]:.0f} ms the first), {runs} of 2500 run")
    assert min(took[1:]) < 20.0
