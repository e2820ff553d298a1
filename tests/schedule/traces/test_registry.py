"""Published traces: read whole, put right where they are known to be off, and fast."""

import os
from pathlib import Path

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule import Priority
from trimtab.schedule.traces.registry import read_trace, read_traces

DATA = Path(os.environ.get("TRIMTAB_DATA") or Path(__file__).parents[4] / "shared" / "data")

needs_data = pytest.mark.skipif(
    not (DATA / "goodput").is_dir(),
    reason="needs the data sets goodput, gpu-throughput, gpu-cluster (TRIMTAB_DATA)",
)

GOODPUT = "workload,job,submit_time_s,application,num_replicas,batch_size\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GAVEL = "trace,job_index,arrival_s,model,batch_size,num_gpus,total_steps,priority_weight,slo\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\n"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_goodput_workload_keeps_application_and_request(tmp_path: Path) -> None:
    path = write(
        tmp_path, GOODPUT + "mine/workload-1,bert-0,5.0,bert,4,48\nmine/workload-2,bert-0,6.0,bert,1,12\n"
    )
    trace = read_trace(path, "mine-1")
    (job,) = trace.jobs
    assert (job.application, job.least, job.most, job.work) == ("bert", 4, 4, None)
    assert trace.batch_sizes == {"bert-0": 48}
    assert sum(group.nodes * group.gpus for group in trace.groups) == 64
    assert trace.elastic(64).jobs[0].most == 64
    assert read_trace(path, "mine/workload-1") == trace
    assert list(read_traces(path)) == ["mine-1", "mine-2"]


def test_which_of_several_traces_must_be_said(tmp_path: Path) -> None:
    path = write(tmp_path, GOODPUT + "a/workload-1,x,5.0,bert,4,48\na/workload-2,x,6.0,bert,1,12\n")
    with pytest.raises(BadInputError, match="a-1, a-2"):
        read_trace(path)
    with pytest.raises(NotFoundError, match="a-3"):
        read_trace(path, "a-3")
    with pytest.raises(BadInputError, match=r'trace\.csv.*"c"'):
        read_trace(write(tmp_path, PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,c\n"), "c")


def test_philly_jobs_are_put_in_order_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY + "2017-10-09 07:01:55,66,2,132,c\n2017-10-09 07:01:45,10,1,10,d\n")
    trace = read_trace(path)
    assert [(job.submitted, job.work, job.workload.tenant) for job in trace.jobs] == [
        (0.0, 10.0, "d"),
        (10.0, 132.0, "c"),
    ]
    assert trace.notes == ("rows were not in order of time (1 went back): sorted",)


def test_gavel_jobs_have_steps_and_deadlines(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL + "t.trace,0,0,A3C,,1,10,1.0,-1.0\nt.trace,1,3,LM,5.0,2,20,1.0,60.0\n")
    first, second = read_trace(path).jobs
    assert (first.application, first.work, first.workload.deadline) == ("A3C", 10.0, None)
    assert (second.application, second.least, second.workload.deadline) == ("LM/5", 2, 60.0)
    assert second.hard


def test_pods_may_have_a_share_of_an_accelerator(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        PODS
        + "a,4000,1024,1,250,T4|G2,LS,Running,5,105,10\n"
        + "b,4000,1024,8,1000,,BE,Pending,6,105,\n"
        + "c,4000,1024,8,1000,,BE,Failed,1,105,5\n",
    )
    (tmp_path / "ali_v2023_nodes.csv.gz").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,8000,2048,2,T4\n")
    trace = read_trace(path)
    assert [job.id for job in trace.jobs] == ["c", "a"]
    share = trace.jobs[1]
    assert (share.worker.gpus, share.worker.cpus, share.worker.memory) == (0.25, 4.0, 2**30)
    assert (share.worker.accelerators, share.work) == (("t4", "g2"), 95.0)
    assert share.workload.priority == Priority.HIGH
    assert trace.jobs[0].worker.gpus == 8.0
    assert trace.notes == (
        "dropped 1 pods that never ran",
        "rows were not in order of creation_time: sorted",
    )
    assert [(g.accelerator, g.nodes, g.gpus, g.cpus, g.memory) for g in trace.groups] == [
        ("t4", 1, 2, 8.0, 2**31)
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOODPUT + "w,a,5,bert,0,48\n", "num_replicas is 0"),
        (GOODPUT + "w,a,5,bert,1.5,48\n", "num_replicas is 1.5"),
        (GOODPUT + "w,a,5,bert,1,48\nw,b,4,bert,1,48\n", "submit_time_s"),
        (GOODPUT + "w,a,5,,1,48\n", "application"),
        (PHILLY + "yesterday,66,2,132,c\n", "timestamp is yesterday"),
        (PHILLY + "2017-10-09 07:01:55,-66,2,132,c\n", "duration is -66"),
        (PHILLY + "2017-10-09 07:01:55,66,0,132,c\n", "num_gpus is 0"),
        (GAVEL + "t,0,0,A3C,,1,0,1.0,-1.0\n", "total_steps is 0"),
        (GAVEL + "t,0,0,A3C,,1,1,1.0,-1.0\nt,0,0,A3C,,1,1,1.0,-1.0\n", 'job_index "0"'),
        (PODS + "a,1,1,1,250,,LS,Running,5,9,10\n", "deletion_time"),
    ],
)
def test_broken_rows_are_refused_with_their_place(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read_trace(write(tmp_path, text))
    assert named in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'trace.csv'}:{text.count(chr(10))}: ")


@needs_data
def test_the_data_sets_are_read_whole() -> None:
    workloads = read_traces(DATA / "goodput" / "workloads.csv.gz")
    assert {name: len(workloads[name].jobs) for name in ("saturn-1", "newtrace-2")} == {
        "saturn-1": 160,
        "newtrace-2": 960,
    }
    gavel = read_trace(DATA / "gpu-throughput" / "gavel_traces.csv.gz", "physical_cluster/max_min_fairness")
    assert len(gavel.jobs) == 96
    pods = read_trace(DATA / "gpu-cluster" / "ali_v2023_pods_default.csv.gz")
    assert len(pods.jobs) == 7255
    assert sum(group.nodes for group in pods.groups) == 1523


@needs_data
def test_two_hundred_thousand_rows_are_read() -> None:
    traces = read_traces(DATA / "gpu-cluster" / "ali_v2023_pods_variants.csv.gz")
    assert sum(len(trace.jobs) for trace in traces.values()) == 173_209
