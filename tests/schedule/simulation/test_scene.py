"""From traces to simulations: every kind of trace has a world, and what cannot run is refused at once."""

from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError, daly_interval
from trimtab.schedule import Market, NodeGroup, efficiency, policy, read_trace
from trimtab.schedule.simulation.faults import FaultRates, RandomFaults
from trimtab.schedule.simulation.replay import Replay
from trimtab.schedule.simulation.scene import Scene, find_trace, read_cluster, read_quotas, scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

ONE = (NodeGroup("a100", "a100", 1, 8, 64, 512e9),)
GOODPUT = "workload,job,submit_time_s,application,num_replicas,batch_size\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def scene(folder: Path, text: str, groups: tuple[NodeGroup, ...] | None = ONE, **options: object) -> Scene:
    path = write(folder, text)
    return scene_of(read_trace(path), path, groups, **options)  # type: ignore[arg-type]


def replay(made: Scene, name: str = "fifo", faults: RandomFaults | None = None, step: float = 60.0) -> Replay:
    settings = SimulationSettings(round=step)
    return simulate(made.jobs, made.cluster, made.world(), policy(name), settings, faults)


def test_a_job_told_by_its_duration_takes_as_long_with_its_smallest_gang(tmp_path: Path) -> None:
    made = scene(tmp_path, "job,submit_s,gpus,duration_s\na,0,4,1000\nb,0,1,70\n")
    assert replay(made).ended.tolist() == [1000.0, 70.0]


def test_each_doubling_of_workers_keeps_95_percent(tmp_path: Path) -> None:
    made = scene(tmp_path, "job,submit_s,min_gpus,max_gpus,duration_s\na,0,2,8,3800\n")
    assert replay(made).ended[0] == pytest.approx(3800 / 4 / 0.95**2)


def test_speeds_are_those_of_the_kind_and_others_go_by_any(tmp_path: Path) -> None:
    text = "job,submit_s,work,speed,speed_v100,accelerators\na,0,1000,1,4,\nb,0,1000,1,4,t4\n"
    groups = (NodeGroup("v100", "v100", 1, 1, 8, 64e9), NodeGroup("t4", "t4", 1, 1, 8, 64e9))
    assert replay(scene(tmp_path, text, groups)).ended.tolist() == [250.0, 1000.0]


def test_shares_of_one_accelerator_run_side_by_side(tmp_path: Path) -> None:
    rows = "".join(f"j{n},0,0.25,100\n" for n in range(5))
    groups = (NodeGroup("t4", "t4", 1, 1, 8, 64e9),)
    ended = replay(scene(tmp_path, "job,submit_s,gpus,duration_s\n" + rows, groups)).ended
    assert sorted(ended.tolist()) == [100.0, 100.0, 100.0, 100.0, 220.0]


def test_jobs_without_accelerators_run_beside_them_and_on_nodes_without(tmp_path: Path) -> None:
    text = "job,submit_s,gpus,cpus,duration_s\na,0,0,32,100\nb,0,0,32,100\nc,0,1,4,100\n"
    groups = (NodeGroup("t4", "t4", 1, 1, 8, 64e9), NodeGroup("cpu", "", 2, 0, 32, 64e9))
    result = replay(scene(tmp_path, text, groups))
    assert result.ended.tolist() == [100.0, 100.0, 100.0]
    assert sorted(segment.group for segment in result.segments) == [0, 1, 1]


def test_who_is_far_from_its_data_fetches_it_first_and_pays(tmp_path: Path) -> None:
    text = "job,submit_s,duration_s,data_zone,data_bytes\na,0,100,east/b,125GB\nb,0,100,east/a,125GB\n"
    groups = (NodeGroup("t4", "t4", 1, 2, 16, 64e9, zone="cloud/east/a"),)
    made = scene(tmp_path, text.replace("east/", "cloud/east/"), groups)
    result = replay(made)
    assert result.ended.tolist() == [200.0, 200.0]  # 10 Gbit/s, whether the zone is another or not
    assert result.spent.tolist() == pytest.approx([2.5, 0.0])
    assert result.cost == pytest.approx(2.5)


def test_saving_costs_as_much_as_daly_expects_and_nothing_where_nothing_interrupts(tmp_path: Path) -> None:
    rows = "".join(f"j{n},0,72000,30,30\n" for n in range(40))
    groups = (NodeGroup("t4", "t4", 40, 1, 8, 64e9, market=Market.SPOT, reclaims=1 / 3600),)
    made = scene(tmp_path, "job,submit_s,duration_s,checkpoint_s,restart_s\n" + rows, groups)
    assert (replay(made, step=600.0).ran == 72030.0).all()
    stormy = replay(made, faults=RandomFaults(groups, FaultRates(refill=60.0), seed=3), step=600.0)
    expected = 1 / efficiency(daly_interval(30, 1 / 3600), 30, 30, 1 / 3600)
    assert stormy.ran.mean() / 72000 == pytest.approx(float(expected), rel=0.02)


def test_who_cannot_save_begins_again(tmp_path: Path) -> None:
    groups = (NodeGroup("t4", "t4", 1, 1, 8, 64e9, market=Market.SPOT, reclaims=1 / 3600),)
    made = scene(tmp_path, "job,submit_s,duration_s\na,0,14400\n", groups)
    result = replay(made, faults=RandomFaults(groups, FaultRates(refill=60.0), seed=1), step=600.0)
    last = result.segments[-1]
    assert len(result.segments) > 1
    assert last.end - last.start == pytest.approx(14400)


@pytest.mark.parametrize("name", ["fifo", "las", "gavel", "trimtab"])
def test_the_same_seed_gives_the_same_replay_with_faults_too(tmp_path: Path, name: str) -> None:
    rows = "".join(f"j{n},{40 * n},{1 + n % 3},{4},{900 + 31 * n},5,20\n" for n in range(15))
    text = "job,submit_s,min_gpus,max_gpus,duration_s,checkpoint_s,restart_s\n" + rows
    groups = (
        NodeGroup("own", "t4", 2, 4, 32, 256e9),
        NodeGroup("spot", "v100", 2, 4, 32, 256e9, market=Market.SPOT, reclaims=1 / 3600),
    )
    made = scene(tmp_path, text, groups)
    rates = FaultRates(node_loss=1 / 7200, repair=600.0, slow=0.3, job_failure=1 / 3600)
    first, again, other = (replay(made, name, RandomFaults(groups, rates, seed)) for seed in (5, 5, 6))
    assert first.segments == again.segments
    assert first.spent.tolist() == again.spent.tolist()
    assert first.why == again.why
    assert np.isfinite(first.ended).all()
    assert first.segments != other.segments


def test_measured_steps_per_second_carry_gavels_jobs(shared_data: Path, tmp_path: Path) -> None:
    header = "trace,job_index,arrival_s,model,batch_size,num_gpus,total_steps,priority_weight,slo\n"
    path = write(tmp_path, header + "mine,0,0,ResNet-18,32,1,100000,1,\n")
    made = scene_of(read_trace(path, "mine"), path, data=shared_data)
    (ended,) = replay(made, step=made.round).ended
    assert made.round == 360.0
    assert ended == pytest.approx(100000 / made.world().look(np.array([0])).speed.max())


def test_applications_adapt_unless_they_are_to_be_rigid(shared_data: Path, tmp_path: Path) -> None:
    path = write(tmp_path, GOODPUT + "w,a,0,cifar10,2,256\nw,b,30,bert,1,12\n")
    trace = read_trace(path, "w")
    adaptive = scene_of(trace, path, data=shared_data)
    rigid = scene_of(trace, path, data=shared_data / "goodput", rigid=True)
    assert {job.most for job in adaptive.jobs} == {64}
    assert (adaptive.round, rigid.round) == (60.0, 360.0)
    assert [segment.workers for segment in replay(rigid).segments] == [2, 1]
    assert np.isfinite(replay(adaptive, "sia").ended).all()


def test_one_kind_on_demand_and_on_spot_serves_adaptive_jobs_from_both(
    shared_data: Path, tmp_path: Path
) -> None:
    path = write(tmp_path, GOODPUT + "".join(f"w,j{n},0,cifar10,1,128\n" for n in range(8)))
    groups = (NodeGroup("dear", "a100", 1, 4, 64, 512e9), NodeGroup("spot", "a100", 1, 4, 64, 512e9))
    result = replay(scene_of(read_trace(path, "w"), path, groups, shared_data), "sia")
    assert {segment.group for segment in result.segments} == {0, 1}


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("job,submit_s,gpus,duration_s\na,0,16,10\n", "16 accelerators.* 8 a100"),
        ("job,submit_s,accelerators,duration_s\na,0,h100,10\n", "1 h100.* 8 a100"),
        ("job,submit_s,work\na,0,10\n", "duration_s"),
        ("job,submit_s,memory,duration_s\na,0,1TB,10\n", "931 GiB.* 477 GiB"),
    ],
)
def test_a_job_that_can_never_run_is_refused(tmp_path: Path, text: str, amounts: str) -> None:
    with pytest.raises(BadInputError, match=f"job a .*{amounts}"):
        scene(tmp_path, text)


def test_a_trace_that_names_no_cluster_needs_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--cluster"):
        scene(tmp_path, "job,submit_s,duration_s\na,0,10\n", None)


def test_an_application_nobody_measured_is_named_with_its_neighbours(
    shared_data: Path, tmp_path: Path
) -> None:
    path = write(tmp_path, GOODPUT + "w,a,0,cifar11,2,256\n")
    with pytest.raises(NotFoundError, match=r"cifar11.*did you mean cifar10"):
        scene_of(read_trace(path, "w"), path, data=shared_data)
    path = write(tmp_path, GOODPUT + "w,a,0,cifar10,2,256\n")
    with pytest.raises(BadInputError, match=r"job a .*cifar10.* t4.* h100"):
        scene_of(read_trace(path, "w"), path, (NodeGroup("h", "h100", 1, 8, 64, 512e9),), shared_data)


def test_measurements_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, GOODPUT + "w,a,0,cifar10,2,256\n")
    with pytest.raises(NotFoundError, match=r"goodput.*--data"):
        scene_of(read_trace(path, "w"), path, data=tmp_path)


def test_a_folder_of_data_sets_holds_traces_by_name(shared_data: Path) -> None:
    trace, file = find_trace(shared_data, "saturn-2")
    assert (trace.name, file.name) == ("saturn-2", "workloads.csv.gz")
    trace, file = find_trace(shared_data / "gpu-throughput", "physical_cluster/max_min_fairness")
    assert (len(trace.jobs), file.name) == (96, "gavel_traces.csv.gz")
    with pytest.raises(NotFoundError, match=r"saturn_1.*did you mean saturn-1"):
        find_trace(shared_data, "saturn_1")
    with pytest.raises(BadInputError, match="--part"):
        find_trace(shared_data, None)


def test_a_folder_without_traces_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"{tmp_path}.*goodput/workloads"):
        find_trace(tmp_path, "saturn-1")


def write_yaml(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_groups_have_what_is_told_and_the_usual_for_the_rest(tmp_path: Path) -> None:
    path = write_yaml(
        tmp_path,
        """
groups:
  - {name: fast, accelerator: A100, nodes: 2, gpus: 8, cpus: 96, memory: 1TB, price: $36/h,
     market: spot, reclaims: 0.05/h, zone: aws/us-east-1/a}
  - {accelerator: t4, nodes: 3, gpus: 4}
  - {name: cpu, nodes: 5, cpus: 32, memory: 128GB, market: reserved}
""",
    )
    fast, usual, plain = read_cluster(path)
    assert fast == NodeGroup(
        "fast", "a100", 2, 8, 96, 1e12, 0.01, Market.SPOT, pytest.approx(0.05 / 3600), "aws/us-east-1/a"
    )
    assert usual == NodeGroup("t4", "t4", 3, 4, 32, 256e9)
    assert plain == NodeGroup("cpu", "", 5, 0, 32, 128e9, market=Market.RESERVED)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "groups"),
        ("groups: []", r"groups.* \[\]"),
        ("group: [{}]", "group.*did you mean groups"),
        ("groups: [{accelerator: a100, node: 2}]", r"groups\[0\].*did you mean nodes"),
        ("groups: [{gpus: 2}]", r"groups\[0\].*accelerator"),
        ("groups: [{nodes: 2}]", r"groups\[0\].*cpus"),
        ("groups: [{accelerator: a100, nodes: 0}]", r"groups\[0\].nodes .*0"),
        ("groups: [{accelerator: a100, price: dear}]", r"price .*'dear'.*\$3\.20/h"),
        ("groups: [{accelerator: a100, market: sport}]", "did you mean spot"),
        ("groups: [{accelerator: a100, reclaims: 1/h}]", "market: spot"),
        ("groups: [{accelerator: a100, market: spot, reclaims: often}]", "reclaims .*0.05/h"),
        ("groups: [{accelerator: t4}, {accelerator: t4}]", "groups.* t4"),
        ("groups: [{accelerator: t4, zone: [1]}]", r"zone .*\[1\]"),
        ("groups: {", "YAML"),
    ],
)
def test_a_bad_cluster_file_is_refused_with_path_and_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(BadInputError, match=f"file.yaml.*{field}") as caught:
        read_cluster(write_yaml(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.yaml"):
        read_cluster(tmp_path / "none.yaml")


def test_quotas_are_tenants_in_a_tree(tmp_path: Path) -> None:
    text = (
        "tenants: [{name: lab, guarantee: 8}, {name: vision, parent: lab, guarantee: 4, limit: 6, weight: 2}]"
    )
    quotas = read_quotas(write_yaml(tmp_path, text))
    assert [tenant.name for tenant in quotas.line("vision")] == ["vision", "lab"]
    assert (quotas.tenants["vision"].limit, quotas.tenants["vision"].weight) == (6.0, 2.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tenants: [{name: a, parent: b}, {name: b, parent: a}]", "a → b → a"),
        ("tenants: [{name: a, guarantee: much}]", "guarantee .*'much'"),
        ("tenants: [{name: a, guarantee: -1}]", "tenant a.* guarantee .*-1"),
        ("tenants: [{name: a, garantee: 1}]", "did you mean guarantee"),
    ],
)
def test_bad_quotas_are_refused(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        read_quotas(write_yaml(tmp_path, text))
