"""Columns of a round."""

from collections.abc import Callable

from trimtab.schedule import Cluster, Group, Jobs, Shape

CLUSTER = Cluster((Group("a", "a", 1, 4, 8.0, 1.0),), (Shape(0, 1), Shape(0, 2)))


def test_rows_are_jobs_and_demand_is_of_one_worker(round_of: Callable[..., Jobs]) -> None:
    jobs = round_of(CLUSTER, [{"gpus": 0.5, "cpus": 2.0, "memory": 3.0}, {"gpus": 4.0}])
    assert len(jobs) == 2
    assert jobs.demand.tolist() == [[0.5, 2.0, 3.0], [4.0, 1.0, 0.0]]
    assert jobs.speed.shape == (2, 2)
