"""The bench of searches over measurements of others: what a session counts, and what is put together."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from searched_spaces import grid, tried, workload
from trimtab_bench.harness import BenchOptions
from trimtab_bench.training_config import search
from trimtab_bench.training_config.rivals import SEARCHES, random_search
from trimtab_bench.training_config.search_tables import best_first_choices

from trimtab.predict.fewshot.case import Case, metrics_table, settings_table

pytest.importorskip("sklearn", reason="two of the methods need scikit-learn")

SCOUT = (
    "n_nodes", "vm", "vm_vcpus", "vm_mem_gib", "vm_price_usd_h", "workload", "framework", "datasize",
    "completed", "elapsed_s", "timestamp", "cpu_pct_usr_mean", "cpu_pct_sys_mean", "cpu_pct_iowait_mean",
    "task_cswch_per_s_mean", "disk_rd_sec_per_s_mean", "disk_wr_sec_per_s_mean", "network_rxkB_per_s_mean",
    "network_txkB_per_s_mean", "paging_majflt_per_s_mean", "disk_pct_util_mean", "memory_kbmemused_mean",
    "memory_pct_memused_mean",
)  # fmt: skip
MULTICLOUD = (
    "provider", "A_family", "A_vcpu", "B_family", "B_vcpu", "C_family", "C_type", "C_vcpu", "nodes",
    "workload", "target_cost", "target_runtime", "status",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four workloads on six configurations, in the form of either data set."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("multicloud", "scout"):
        (folder / name).mkdir()
    with (folder / "multicloud" / "multi-cloud-configuration.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(MULTICLOUD)
        for work, task in enumerate(("alpha", "beta", "gamma", "delta"), 1):
            for cpus in (0, 1):
                for nodes in (2, 3, 4):
                    seconds = 100.0 * work / (1 + cpus) / nodes + 5 * nodes
                    cost = seconds * 0.05 * (1 + cpus) * nodes / 3600
                    status = "failed" if (task, cpus, nodes) == ("beta", 0, 2) else "ok"
                    rows.writerow(
                        ["A", 0, cpus, *[""] * 5, nodes, f"sales-{task}", f"{cost:.9f}", seconds, status]
                    )
    with (folder / "scout" / "scout_multi_node.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(SCOUT)
        for work, program in enumerate(("sort", "count", "join", "rank"), 1):
            for vm, cpus in (("m4.large", 2), ("m4.xlarge", 4)):
                for nodes in (4, 8, 16):
                    seconds = 5000.0 * work / cpus / nodes + 2 * nodes
                    own = [nodes, vm, cpus, 4 * cpus, 0.05 * cpus, program, "spark", "huge", "True", seconds]
                    rows.writerow([*own, "2018-01-05", *[1.0] * 12])
    return folder


def test_without_data_it_says_what_it_needs() -> None:
    figures, tables = search.search_section(BenchOptions(quiet=True))
    assert figures["search"] == {}
    assert "--data" in figures["search_skipped"]
    assert tables == ()


def test_all_searches_meet_the_same_workloads_and_finished_parts_are_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    options = BenchOptions(quick=True, quiet=True, data=data)
    figures, tables = search.search_section(options)
    for name in ("multicloud", "scout"):
        for target in ("cost", "time"):
            found = figures["search"][name][target]
            assert set(found) == set(SEARCHES)
            for by_budget in found.values():
                assert len(by_budget) == len(search.BUDGETS)
                assert by_budget == sorted(by_budget, reverse=True)
                assert math.isclose(by_budget[-1], 1.0)  # everything was tried
            spent = figures["spending"][name][target]["random"]
            assert spent["dollars"] == sorted(spent["dollars"])
            assert spent["seconds"][0] > 0
    assert any("found over optimal" in table.title for table in tables)
    files = sorted(tmp_path.rglob("*.json"))
    before = [path.stat().st_mtime_ns for path in files]
    assert search.search_section(options)[0] == figures
    assert [path.stat().st_mtime_ns for path in files] == before


def test_a_failed_trial_is_spent_and_finds_nothing() -> None:
    case = workload("searched", 1000.0, 100e9)
    values = grid().values("cost", case.seconds)
    orders = [[one.row for one in tried(random_search(grid(), "cost", [], s), case)[0]] for s in range(9)]
    seed, rows = next((seed, rows) for seed, rows in enumerate(orders) if not case.ok[rows[0]])
    session = search.play(random_search(grid(), "cost", [], seed), grid(), case, "cost", 12)
    best = np.minimum.accumulate(np.where(case.ok[rows], values[rows], values[case.ok].max()))
    assert session.found == pytest.approx(best / values[case.ok].min())
    assert session.dollars == pytest.approx(np.cumsum(values[rows]))


def test_more_evaluations_than_configurations_change_nothing() -> None:
    case = workload("searched", 1000.0)
    session = search.play(random_search(grid(), "time", [], 0), grid(), case, "time", 20)
    assert len(session.found) == 20
    assert session.seconds[11] == session.seconds[-1]


def test_the_rule_to_stop_needs_six_trials_and_a_small_promise() -> None:
    gains: list[float | None] = [None, None, None, 0.01, 0.5, 0.5, 0.5, 0.05, 0.01]
    assert search.SearchHistory([1.0] * 9, [0.0] * 9, [0.0] * 9, gains).stopped() == 7
    assert search.SearchHistory([1.0] * 9, [0.0] * 9, [0.0] * 9, [None] * 9).stopped() is None


def test_words_leave_the_searched_application_out() -> None:
    case = workload("naive-bayes-spark-huge", 100.0, application="naive-bayes")
    assert search.space_of(case).words == {"spark", "huge"}


def test_goals_are_held_against_rivals_of_the_same_run() -> None:
    from trimtab_bench.training_config.search_tables import search_goals

    found = {"trimtab": [1.4, 1.1, 1.0, 1.0, 1.0], "cherrypick": [3.0, 2.0, 1.5, 1.2, 1.0]}
    goals = search_goals({"made": {"cost": found}}, search.BUDGETS)
    assert all(each["met"] for each in goals.values())
    worse = {**found, "random": [1.3, 2.0, 2.0, 2.0, 2.0]}
    missed = search_goals({"made": {"cost": worse}}, search.BUDGETS)
    assert [name for name, each in missed.items() if not each["met"]] == ["made, cost, B=1, lowest"]


def _case(name: str, seconds: tuple[float, float]) -> Case:
    """A workload on two and on three machines; negative seconds failed."""
    nodes = np.array([2.0, 3.0])
    settings = settings_table(2, nodes=nodes, price_per_hour=0.1)
    took = np.array(seconds)
    metrics = metrics_table(2)
    return Case(
        "made", name.split("-")[1], name, "", ("two", "three"), settings, metrics, abs(took), took > 0
    )


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [
        (
            {"d-one": (10.0, 20.0), "d-two": (40.0, 10.0), "e-three": (10.0, 30.0)},
            (2 * min((1 + 4) / 2, (2 + 1) / 2) + 1) / 3,
        ),
        ({"d-one": (10.0, 20.0), "d-two": (-1.0, 10.0)}, 1.0),
    ],
    ids=["the same choice for the same words", "a failure counts as the worst that completed"],
)
def test_the_best_first_choice_in_hindsight(seconds: dict[str, tuple[float, float]], bound: float) -> None:
    cases = [_case(name, both) for name, both in seconds.items()]
    spaces = {"made": [(search.space_of(case), case) for case in cases]}
    assert best_first_choices(spaces)["made"]["time"] == pytest.approx(bound)
