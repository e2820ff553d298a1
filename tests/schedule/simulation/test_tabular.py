"""Jobs that progress as a table says."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError, Workload
from trimtab.schedule import Checkpoint, Cluster, GangShape, Job, NodeGroup, Worker
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.tabular import TabularWorld, rates, read_throughputs

GROUPS = (NodeGroup("a", "a", 1, 4, 8.0, 1.0), NodeGroup("b", "b", 1, 4, 8.0, 1.0))
CLUSTER = Cluster(GROUPS, (GangShape(0, 1), GangShape(0, 2), GangShape(1, 1)))
RATES = {"x": np.array([1.0, 1.5, 3.0]), "y": np.array([0.0, 0.0, 2.0])}
ALL = np.arange(2)


def _job(id: str, kinds: tuple[str, ...] = (), least: int = 1, most: int = 2) -> Job:
    worker = Worker(accelerators=kinds)
    return Job(id, Workload(id), 0.0, worker, least, most, checkpoint=Checkpoint(restart=7.0))


def _world(believed: list[float] | None = None) -> TabularWorld:
    jobs = [_job("first"), _job("second", ("b",))]
    guess = None if believed is None else np.array(believed)
    return TabularWorld(jobs, CLUSTER, ["x", "y"], RATES, np.array([30.0, 10.0]), guess)


def _on(group: int, workers: int) -> Placement:
    return Placement(group, ((0, workers),), (1.0, 1.0, 0.0))


def test_speeds_are_those_of_shapes_a_job_accepts() -> None:
    jobs = [_job("any"), _job("kind", ("a",)), _job("gang", least=2)]
    world = TabularWorld(jobs, CLUSTER, ["x"] * 3, RATES, np.ones(3))
    assert world.look(np.arange(3)).speed.tolist() == [[1.0, 1.5, 3.0], [1.0, 1.5, 0.0], [0.0, 1.5, 0.0]]
    assert world.restart_seconds(0) == 7.0


def test_work_advances_at_the_rate_of_the_shape() -> None:
    world = _world()
    world.start(0, _on(0, 2))
    world.start(1, _on(1, 1))
    assert world.advance(ALL, np.array([10.0, 10.0])).tolist() == [np.inf, 5.0]
    assert world.look(ALL).done.tolist() == [15.0, 10.0]
    world.start(0, _on(1, 1))
    assert world.advance(ALL[:1], np.array([10.0])).tolist() == [5.0]


def test_lost_work_is_undone_but_no_more_than_was_done() -> None:
    world = _world()
    world.start(0, _on(0, 1))
    world.advance(ALL[:1], np.array([10.0]))
    world.stop(0, 4.0)
    assert world.look(ALL).done.tolist() == [6.0, 0.0]
    world.stop(0, 100.0)
    assert world.look(ALL).done.tolist() == [0.0, 0.0]


def test_what_is_left_is_as_believed_to_the_end() -> None:
    world = _world()
    world.start(0, _on(0, 1))
    world.advance(ALL[:1], np.array([29.5]))
    assert world.look(ALL).remaining.tolist() == [0.5, 10.0]


def test_who_did_more_than_believed_has_a_tenth_of_that_left() -> None:
    world = _world([10.0, np.nan])
    assert world.look(ALL).remaining[0] == 10.0
    assert np.isnan(world.look(ALL).remaining[1])
    world.start(0, _on(0, 1))
    world.advance(ALL[:1], np.array([20.0]))
    assert world.look(ALL).remaining[0] == pytest.approx(2.0)


def test_a_job_that_nothing_can_run_is_named() -> None:
    jobs = [_job("fine"), _job("lost", ("a",))]
    with pytest.raises(BadInputError, match="lost"):
        TabularWorld(jobs, CLUSTER, ["x", "y"], RATES, np.ones(2))
    with pytest.raises(BadInputError, match="huge"):
        TabularWorld([_job("huge", least=3, most=8)], CLUSTER, ["x"], RATES, np.ones(1))


HEADER = "source,accelerator,model,batch_size,num_gpus,other_model,consolidated,steps_per_s\n"
MEASURED_CLUSTER = Cluster(
    (NodeGroup("v100", "v100", 4, 8, 8.0, 1.0), NodeGroup("k80", "k80", 4, 8, 8.0, 1.0)),
    (GangShape(0, 1), GangShape(0, 16), GangShape(1, 1)),
)


def _write(folder: Path, text: str) -> Path:
    with gzip.open(folder / "gavel_throughputs.csv.gz", "wt") as file:
        file.write(text)
    return folder


def test_only_jobs_alone_on_a_server_count(tmp_path: Path) -> None:
    table = _write(
        tmp_path,
        HEADER
        + "simulation,v100,net,16,1,,True,4.0\n"
        + "simulation,k80,net,16,1,,True,0.0\n"
        + "simulation,k80,other,,1,,True,0.5\n"
        + "simulation,v100,net,16,1,other,True,1.0\n"
        + "simulation,v100,net,16,2,,False,3.0\n"
        + "physical,v100,net,32,1,,True,9.0\n"
        + "simulation,v100,net,16,8,,True,2.0\n",
    )
    found = read_throughputs(table)
    assert found == {
        (("net", 16.0, 1), "v100"): 4.0,
        (("other", None, 1), "k80"): 0.5,
        (("net", 16.0, 8), "v100"): 2.0,
    }


def test_a_class_runs_in_shapes_of_its_size_where_it_was_measured() -> None:
    measured = {(("net", 16.0, 1), "v100"): 4.0, (("net", 16.0, 8), "v100"): 2.0}
    small, large = ("net", 16.0, 1), ("net", 16.0, 16)
    found = rates(measured, [small, large], MEASURED_CLUSTER)
    assert found[small].tolist() == [4.0, 0.0, 0.0]
    assert found[large].tolist() == [0.0, 2.0, 0.0]


def test_a_missing_or_broken_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"{tmp_path}.*--data"):
        read_throughputs(tmp_path)
    with pytest.raises(BadInputError, match=f"{tmp_path}.*fast"):
        read_throughputs(_write(tmp_path, HEADER + "simulation,v100,net,16,1,,True,fast\n"))
    with pytest.raises(BadInputError, match=f"{tmp_path}.*source"):
        read_throughputs(_write(tmp_path, "a,b\n1,2\n"))


def test_the_data_set_has_all_models_on_three_accelerators(shared_data: Path) -> None:
    found = read_throughputs(shared_data / "gpu-throughput")
    assert {kind for _, kind in found} == {"v100", "p100", "k80"}
    assert all(rate > 0 for rate in found.values())
