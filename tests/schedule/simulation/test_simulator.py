"""Small replays worked out by hand, laws of any replay, and how fast replays are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, Clock, Workload
from trimtab.schedule import (
    WAITING,
    Allocation,
    Checkpoint,
    Cluster,
    GangShape,
    Job,
    JobColumns,
    JobData,
    NodeGroup,
    SchedulingPolicy,
    Worker,
)
from trimtab.schedule.placing import Placement
from trimtab.schedule.policies import policy
from trimtab.schedule.simulation.faults import FaultRates, NodeFault, RandomFaults
from trimtab.schedule.simulation.replay import Replay
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate
from trimtab.schedule.simulation.tabular import TabularWorld

GROUPS = (NodeGroup("a", "a", 2, 2, 8.0, 1e9, price=2.0, zone="here"),)
ONE, TWO = 0, 1
CLUSTER = Cluster(GROUPS, (GangShape(0, 1), GangShape(0, 2)))
RESTART = Checkpoint(seconds=0.0, restart=10.0)

Wishes = Mapping[str, int]
"""The shape each job gets by id; the others wait."""


@dataclass
class Script:
    """A policy that gives what it is told, from each moment on."""

    moments: Mapping[float, Wishes]
    refuses: tuple[str, ...] = ()

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        wishes = self.moments[max(moment for moment in self.moments if moment <= clock.now())]
        shape = np.array([wishes.get(id, WAITING) for id in jobs.ids], dtype=np.int64)
        refused = tuple(row for row, id in enumerate(jobs.ids) if id in self.refuses)
        return Allocation(shape, np.arange(len(jobs)), {}, refused)


class Broken(RandomFaults):
    """These nodes go and come back, and one of them may be slow."""

    active = True

    def __init__(self, faults: Iterable[NodeFault] = (), slow: int | None = None) -> None:
        super().__init__()
        self._faults = sorted(faults)
        self._slow_node = slow

    def until(self, now: float) -> Iterable[NodeFault]:
        while self._faults and self._faults[0].time <= now:
            yield self._faults.pop(0)

    def slowness(self, placement: Placement) -> float:
        return 2.0 if any(node == self._slow_node for node, _ in placement.parts) else 1.0

    def hazard(self, placement: Placement) -> float:
        return 1e-6


def job(id: str, submitted: float = 0.0, checkpoint: Checkpoint | None = RESTART, **more: object) -> Job:
    return replace(Job(id, Workload(id), submitted, least=1, most=2, checkpoint=checkpoint), **more)  # type: ignore[arg-type]


def replay(
    jobs: Sequence[Job],
    work: Sequence[float],
    policy: SchedulingPolicy,
    faults: RandomFaults | None = None,
    cluster: Cluster = CLUSTER,
) -> Replay:
    """One worker does a unit per second, two do two."""
    rates = {"any": cluster.shape_workers.astype(float)}
    world = TabularWorld(jobs, cluster, ["any"] * len(jobs), rates, np.array(work, dtype=float))
    return simulate(jobs, cluster, world, policy, faults=faults)


def alone(
    work: float, moments: Mapping[float, Wishes], faults: RandomFaults | None = None, **more: object
) -> Replay:
    return replay([job("a", **more)], [work], Script(moments), faults)  # type: ignore[arg-type]


def test_a_start_costs_the_restart_and_the_end_is_exact() -> None:
    done = alone(100.0, {0: {"a": ONE}})
    assert done.ended.tolist() == [110.0]
    assert done.started.tolist() == [0.0]
    assert done.attained.tolist() == [110.0]
    assert done.spent.tolist() == [110.0]
    assert done.restarts.tolist() == [0]
    assert (done.rounds, done.job_rounds) == (2, 2)


def test_a_change_of_form_costs_another_restart() -> None:
    done = alone(200.0, {0: {"a": ONE}, 60: {"a": TWO}})
    assert done.ended.tolist() == [60.0 + 10.0 + 150.0 / 2]
    assert done.restarts.tolist() == [1]
    assert done.attained.tolist() == [60.0 + 2 * 85.0]
    assert [(s.workers, s.start, s.end) for s in done.segments] == [(1, 0.0, 60.0), (2, 60.0, 145.0)]


def test_moving_to_other_nodes_in_the_same_form_is_free() -> None:
    jobs = [job("a"), job("short"), job("c"), job("gang", 60.0)]
    first = {"a": ONE, "short": ONE, "c": ONE}
    done = replay(jobs, [150.0, 20.0, 150.0, 100.0], Script({0: first, 60: {**first, "gang": TWO}}))
    assert done.ended.tolist() == [160.0, 30.0, 160.0, 60.0 + 10.0 + 50.0]
    assert done.restarts.tolist() == [0, 0, 0, 0]


def test_a_suspended_job_costs_nothing_and_goes_on_where_it_was() -> None:
    done = alone(100.0, {0: {"a": ONE}, 60: {}, 120: {"a": ONE}})
    assert done.ended.tolist() == [120.0 + 10.0 + 50.0]
    assert done.attained.tolist() == [120.0]
    assert done.restarts.tolist() == [1]
    assert done.waited.tolist() == [60.0]


def test_what_a_job_leaves_is_given_away_at_the_next_round() -> None:
    jobs = [job("a"), job("b")]
    one = Cluster((replace(GROUPS[0], nodes=1, gpus=1),), (GangShape(0, 1),))
    done = replay(jobs, [60.0, 60.0], policy("fifo"), cluster=one)
    assert done.ended.tolist() == [70.0, 120.0 + 70.0]


def test_who_comes_within_a_round_waits_for_the_next() -> None:
    assert alone(10.0, {0: {"a": ONE}}, submitted=30.0).started.tolist() == [60.0]
    assert alone(10.0, {0: {"a": ONE}}, submitted=60.0).started.tolist() == [60.0]


def test_idle_time_is_skipped() -> None:
    done = replay([job("a"), job("b", 1e9 + 1.0)], [10.0, 10.0], policy("fifo"))
    assert done.rounds == 2
    assert 0 <= done.started[1] - (1e9 + 1.0) < 60.0


def test_a_lost_node_loses_what_was_not_saved() -> None:
    saves = Checkpoint(interval=20.0, seconds=0.0, restart=10.0)
    done = alone(100.0, {0: {"a": ONE}}, Broken([NodeFault(45.0, 0, 0)]), checkpoint=saves)
    # 35 seconds of work, of which 20 were saved; then on the other node from the next round on.
    assert done.ended.tolist() == [60.0 + 10.0 + 80.0]
    assert [(s.start, s.end) for s in done.segments] == [(0.0, 45.0), (60.0, 150.0)]
    assert done.attained.tolist() == [45.0 + 90.0]


def test_a_job_that_cannot_save_starts_from_the_beginning() -> None:
    done = alone(100.0, {0: {"a": ONE}}, Broken([NodeFault(45.0, 0, 0)]), checkpoint=None)
    assert done.ended.tolist() == [160.0]


def test_stopping_on_purpose_saves() -> None:
    moments = {0: {"a": ONE}, 60: {}, 120: {"a": ONE}}
    done = alone(
        100.0,
        moments,
        Broken([NodeFault(150.0, 0, 0)]),
        checkpoint=Checkpoint(interval=1e6, seconds=0.0, restart=0.0),
    )
    # 60 saved when it was stopped, 30 lost with the node.
    assert done.ended.tolist() == [180.0 + 40.0]


def test_saving_takes_its_time_where_nodes_may_be_lost() -> None:
    saves = Checkpoint(interval=20.0, seconds=5.0, restart=10.0)
    assert alone(100.0, {0: {"a": ONE}}, checkpoint=saves).ended.tolist() == [110.0]
    assert alone(100.0, {0: {"a": ONE}}, Broken(), checkpoint=saves).ended.tolist() == [135.0]


def test_a_slow_node_is_slow() -> None:
    assert alone(100.0, {0: {"a": ONE}}, Broken(slow=0)).ended.tolist() == [210.0]


def test_a_cluster_without_nodes_waits_for_their_return() -> None:
    gone = [NodeFault(5.0, 0, node) for node in (0, 1)]
    back = [NodeFault(290.0, 0, node, back=True) for node in (0, 1)]
    done = replay([job("a", 10.0)], [50.0], policy("fifo"), Broken([*gone, *back]))
    assert done.ended.tolist() == [300.0 + 10.0 + 50.0 / 2]


def test_refused_jobs_leave_without_having_begun() -> None:
    jobs = [job("a"), job("b")]
    done = replay(jobs, [10.0, 10.0], Script({0: {"b": ONE}}, refuses=("a", "b")))
    assert done.refused.tolist() == [True, False]
    assert done.ended.tolist() == [np.inf, 20.0]
    assert len(done.completion) == 1
    assert "deadline" in done.why[0]


def test_data_is_fetched_once() -> None:
    far = JobData("elsewhere", 1e11)  # 80 s, and $2 to another zone of a region
    done = alone(100.0, {0: {"a": ONE}, 120: {}, 180: {"a": ONE}}, data=far)
    assert done.ended.tolist() == [180.0 + 10.0 + 70.0]
    assert done.spent.tolist() == [200.0 + 2.0]


def test_who_is_stopped_while_it_fetches_fetches_the_rest_later() -> None:
    far = JobData("elsewhere", 1e11)
    done = alone(100.0, {0: {"a": ONE}, 60: {}, 120: {"a": ONE}}, data=far)
    assert done.ended.tolist() == [120.0 + 10.0 + 20.0 + 100.0]


def test_a_trace_out_of_order_is_refused() -> None:
    with pytest.raises(BadInputError, match=": b "):
        replay([job("a", 10.0), job("b", 0.0)], [1.0, 1.0], policy("fifo"))


def test_rounds_take_time() -> None:
    world = TabularWorld([], CLUSTER, [], {}, np.empty(0))
    with pytest.raises(BadInputError, match=" 0 seconds"):
        simulate([], CLUSTER, world, policy("fifo"), SimulationSettings(round=0.0))


def test_a_replay_that_never_ends_is_ended() -> None:
    jobs = [job("a")]
    world = TabularWorld(jobs, CLUSTER, ["x"], {"x": np.ones(2)}, np.array([10.0]))
    with pytest.raises(BadInputError, match=r"20|21 .* a$"):
        simulate(jobs, CLUSTER, world, Script({0: {}}), SimulationSettings(most_rounds=20))


def test_no_jobs_are_soon_done() -> None:
    done = replay([], [], policy("fifo"))
    assert (done.rounds, done.makespan, done.utilization) == (0, 0.0, 0.0)


def test_progress_is_told() -> None:
    jobs, heard = [job("a"), job("b")], list[int]()
    world = TabularWorld(jobs, CLUSTER, ["x"] * 2, {"x": np.ones(2)}, np.array([10.0, 100.0]))
    simulate(jobs, CLUSTER, world, policy("fifo"), progress=heard.append)
    assert heard == [1, 2]


MIXED = Cluster(
    (NodeGroup("a", "a", 2, 4, 8.0, 64.0, price=1.0), NodeGroup("b", "b", 3, 2, 8.0, 64.0, price=2.0)),
    tuple(GangShape(group, size) for group in (0, 1) for size in (1, 2, 3, 4)),
)
asked = st.tuples(
    st.integers(0, 500),
    st.integers(1, 4),
    st.sampled_from([0.3, 0.5, 1.0]),
    st.integers(1, 300),
    st.sampled_from([0, 10]),
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(asked, min_size=1, max_size=12),
    st.sampled_from(["fifo", "srtf", "las", "priority", "drf"]),
    st.booleans(),
)
def test_all_work_is_done_and_nothing_is_given_twice(
    rows: list[tuple[int, int, float, int, int]], name: str, failing: bool
) -> None:
    jobs = [
        Job(
            f"{n}",
            Workload(f"{n}", priority=priority),
            float(when),
            Worker(gpus),
            least=size,
            most=size,
            checkpoint=RESTART,
        )
        for n, (when, size, gpus, _, priority) in enumerate(sorted(rows))
    ]
    work = np.array([float(row[3]) for row in sorted(rows)])
    rates = {"any": np.ones(len(MIXED.shapes))}
    world = TabularWorld(jobs, MIXED, ["any"] * len(jobs), rates, work)
    often = RandomFaults(
        MIXED.groups, FaultRates(node_loss=1e-3, repair=200.0, job_failure=1e-3), seed=len(jobs)
    )
    done = simulate(jobs, MIXED, world, policy(name), faults=often if failing else None)
    assert np.isfinite(done.ended).all()
    assert (done.started >= done.submitted).all()
    starts = 1 + done.restarts
    assert (done.ran >= work - 1e-6).all()
    if not failing:
        # No more than restarts and work; less of a restart where one was stopped before it was over.
        assert (done.ran <= work + 10.0 * starts + 1e-6).all()
    gpus = np.array([each.worker.gpus for each in jobs])
    held = np.zeros(len(jobs))
    for segment in done.segments:
        held[segment.job] += segment.workers * gpus[segment.job] * (segment.end - segment.start)
    assert held == pytest.approx(done.attained)
    _never_too_much(done, gpus)


def _never_too_much(done: Replay, gpus: np.ndarray) -> None:
    for group, capacity in enumerate(MIXED.capacity[:, 0]):
        here = [segment for segment in done.segments if segment.group == group]
        for at in {segment.start for segment in here}:
            together = [s.workers * gpus[s.job] for s in here if s.start <= at < s.end]
            assert sum(together) <= capacity + 1e-6


def _many(count: int, gpus: int, rounds: float) -> tuple[list[Job], Cluster, Callable[[], TabularWorld]]:
    """Jobs of one worker, more than their accelerators can do at a time, of so many rounds on average."""
    draw = np.random.default_rng(0)
    work = draw.exponential(rounds * 60.0, count)
    when = np.sort(draw.uniform(0.0, 0.8 * count * rounds * 60.0 / gpus, count))
    classes = draw.choice([0, 10, 20], count)
    jobs = [
        Job(f"{n}", Workload(f"{n}", priority=int(each)), float(at), checkpoint=Checkpoint(restart=10.0))
        for n, (at, each) in enumerate(zip(when, classes, strict=True))
    ]
    cluster = Cluster((NodeGroup("a", "a", gpus // 8, 8, 96.0, 1e12),), (GangShape(0, 1),))
    return jobs, cluster, lambda: TabularWorld(jobs, cluster, ["any"] * count, {"any": np.ones(1)}, work)


def test_the_same_seed_gives_the_same_replay() -> None:
    jobs, cluster, world = _many(100, 16, 5.0)
    rates = FaultRates(node_loss=1e-4, repair=300.0, slow=0.3, job_failure=1e-4)
    first, second, other = (
        simulate(jobs, cluster, world(), policy("srtf"), faults=RandomFaults(cluster.groups, rates, seed))
        for seed in (1, 1, 2)
    )
    assert first.ended.tolist() == second.ended.tolist()
    assert first.segments == second.segments
    assert first.ended.tolist() != other.ended.tolist()


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["fifo", "las", "srtf", "priority"])
def test_200000_jobs_a_second_advance_by_a_round(name: str) -> None:
    """`pytest -m benchmark -s tests/schedule/simulation/test_simulator.py` prints it."""
    jobs, cluster, world = _many(20_000, 2000, 120.0)
    begun = process_time()
    done = simulate(jobs, cluster, world(), policy(name))
    each = done.job_rounds / (process_time() - begun)
    active = done.job_rounds / done.rounds
    print(f"\n{name}: {each:,.0f} job-rounds/s, {done.rounds} rounds of {active:.0f} jobs on average")
    assert each > 200_000
