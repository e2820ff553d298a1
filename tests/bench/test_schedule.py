"""The bench of scheduling: its sections on few jobs, how it goes on after a break, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
from trimtab_bench import BenchOptions, run_bench
from trimtab_bench.harness import BenchPart, Kept, finish
from trimtab_bench.schedule.parts import parts_of
from trimtab_bench.schedule.philly import (
    QUICK_JOBS,
    QUICK_LOAD,
    PhillyJobs,
    belief_figures,
    busiest,
    deadline_figures,
    duration,
    had_of_entitled,
    priority_figures,
    spot_figures,
    tenant_figures,
)
from trimtab_bench.schedule.report import compared
from trimtab_bench.schedule.speed import job_rounds_per_second, round_seconds
from trimtab_bench.schedule.workloads import (
    CONTESTANTS,
    GAVEL_TRACE,
    SIA,
    gavel_trace_figures,
    workload_figures,
)

from trimtab.core import BadInputError, Workload
from trimtab.schedule import Job, NodeGroup, read_trace

NODE = NodeGroup("nodes", "v100", 1, 8, 64.0, 512e9)


def _job(name: str, gpus: int, seconds: float, submitted: float = 0.0, tenant: str = "a") -> Job:
    workload = Workload(name, tenant=tenant)
    return Job(name, workload, submitted, least=gpus, most=gpus, work=gpus * seconds)


@pytest.fixture(scope="module")
def philly(shared_data: Path) -> PhillyJobs:
    trace = read_trace(shared_data / "goodput" / "philly_trace.csv.gz")
    return busiest(trace.jobs, QUICK_JOBS, QUICK_LOAD)


@pytest.fixture(scope="module")
def few(philly: PhillyJobs) -> PhillyJobs:
    """The first of them, whose queues are as long."""
    return replace(philly.loaded(2.0), jobs=philly.jobs[:70])


def test_it_says_which_data_it_needs() -> None:
    with pytest.raises(BadInputError, match="--data"):
        run_bench("schedule", BenchOptions(quiet=True))


def test_the_slice_is_of_consecutive_jobs_and_loads_its_nodes_as_told(philly: PhillyJobs) -> None:
    submitted = [job.submitted for job in philly.jobs]
    assert len(philly.jobs) == QUICK_JOBS
    assert submitted == sorted(submitted)
    assert submitted[0] == 0.0
    assert all(60.0 <= duration(job) <= 43_200.0 and job.least <= 16 for job in philly.jobs)
    (group,) = philly.groups
    load = sum(job.work or 0.0 for job in philly.jobs) / submitted[-1] / (group.nodes * group.gpus)
    assert 0.8 * QUICK_LOAD < load <= QUICK_LOAD
    assert philly.loaded(2.0).groups[0].nodes == -(-group.nodes // 2)


def test_feasible_deadlines_are_the_same_for_all_and_those_of_edf_are_met(few: PhillyJobs) -> None:
    figures = deadline_figures(few, ("edf", "fifo"), 0)
    assert figures["edf"]["feasible"] == figures["fifo"]["feasible"]
    assert figures["edf"]["feasible_met"] > figures["fifo"]["feasible_met"]


def test_high_priorities_are_shorter_than_first_come_and_never_beyond_the_bound(few: PhillyJobs) -> None:
    figures = priority_figures(few, ("priority", "fifo"), 0)
    assert 0.0 < figures["priority"]["shorter"] <= figures["priority"]["bound"]
    assert figures["fifo"]["shorter"] == 0.0


def test_tenants_who_send_little_wait_less_where_tenants_are_equal(few: PhillyJobs) -> None:
    figures = tenant_figures(few, ("drf", "fifo"), 0)
    assert figures["drf"]["others_h"] < figures["fifo"]["others_h"]
    assert figures["drf"]["jain_shares"] > figures["fifo"]["jain_shares"]


def test_who_cannot_use_its_share_is_entitled_to_what_it_asks_for() -> None:
    jobs = (_job("all", 8, 36_000.0), _job("one", 1, 18_000.0, tenant="b"))
    replay = PhillyJobs(jobs, (NODE,)).run("fifo")  # the second waits for the first, though owed one of eight
    assert had_of_entitled(replay).tolist() == pytest.approx([1.0, 0.33], abs=0.01)
    assert had_of_entitled(PhillyJobs(jobs, (replace(NODE, nodes=2),)).run("fifo")).min() > 0.98


def test_wrong_estimates_mislead_who_trusts_them() -> None:
    jobs = tuple(_job(f"{n}", 8, 600.0 * 1.1**n) for n in range(10))
    figures = belief_figures(PhillyJobs(jobs, (NODE,)), ("srtf", "fifo"), 0)
    assert figures["srtf"]["ratio"] > 1.02
    assert figures["fifo"]["ratio"] == pytest.approx(1.0, abs=0.02)


def test_spot_is_cheaper_at_the_same_deadlines(few: PhillyJobs) -> None:
    figures = spot_figures(few, 0)
    assert figures["with spot"]["cheaper"] > 0.4
    assert figures["with spot"]["deadlines_met"] >= figures["on-demand"]["deadlines_met"]


def test_gavel_is_where_gavel_has_it(shared_data: Path) -> None:
    figures = gavel_trace_figures(shared_data, "gavel")
    assert figures["avg_jct_h"] == pytest.approx(GAVEL_TRACE["gavel"][0], rel=0.1)


def test_a_workload_has_tenants_and_costs_dollars(shared_data: Path) -> None:
    path = shared_data / "goodput" / "workloads.csv.gz"
    trace = read_trace(path, "saturn-1")
    few = replace(trace, jobs=trace.jobs[:30])
    rigid, adaptive = (workload_figures(few, path, shared_data, CONTESTANTS[who]) for who in ("fifo", "sia"))
    assert adaptive["avg_jct_h"] < rigid["avg_jct_h"]
    assert rigid["jain"] < 1.0
    assert 0.0 < adaptive["cost"] < 30 * 100.0


def test_only_listed_workloads_are_compared_with_published_figures() -> None:
    there = SIA["saturn-1"]
    figures = {"avg_jct_h": there.average / 2, "p99_jct_h": there.p99}
    by_policy = {"saturn-1": {"trimtab": figures, "sia": {**figures, "avg_jct_h": there.average}}}
    listed = compared(by_policy, listed=True)["saturn-1"]
    assert listed["sia_to_published"] == 1.0
    assert listed["trimtab_to_published_sia"] == listed["trimtab_to_sia"] == 0.5
    assert "sia_to_published" not in compared(by_policy, listed=False)["saturn-1"]


def test_rounds_and_simulations_take_some_time() -> None:
    assert 0.0 < round_seconds(40, 0) < 30.0
    assert job_rounds_per_second("fifo", 400, 0) > 100.0


def test_parts_that_are_done_are_not_done_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def answer(name: str) -> dict[str, float]:
        if name == "b" and ran.count("b") == 0:
            ran.append("b")
            raise KeyboardInterrupt
        ran.append(name)
        return {"value": float(len(name))}

    parts = [BenchPart(("section", name), lambda name=name: answer(name)) for name in ("a", "b", "c:x=1/2")]
    with pytest.raises(KeyboardInterrupt):
        finish(parts, Kept(tmp_path), lambda part: None)
    found = finish(parts, Kept(tmp_path), lambda part: None)
    assert ran == ["a", "b", "b", "c:x=1/2"]
    assert found == {("section", name): {"value": float(len(name))} for name in ("a", "b", "c:x=1/2")}


def test_other_workloads_take_the_place_of_the_listed_ones(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "workload,job,submit_time_s,application,num_replicas,batch_size\n"
        "mine,a,0,cifar10,1,128\nmine,b,60,bert,2,24\nother,a,0,cifar10,1,128\n"
    )
    keys = [part.key for part in parts_of(BenchOptions(quick=True, workloads=path), shared_data)]
    assert {key[1] for key in keys if key[0] == "workloads"} == {"mine", "other"}
    assert len(set(keys)) == len(keys)


def test_a_file_of_other_traces_is_refused_with_the_columns_it_needs(shared_data: Path) -> None:
    other = shared_data / "gpu-throughput" / "gavel_traces.csv.gz"
    with pytest.raises(BadInputError, match=r"submit_time_s.*num_replicas"):
        parts_of(BenchOptions(quick=True, workloads=other), shared_data)
