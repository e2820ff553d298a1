"""The few-shot bench: every method through every test that the data is there for, and no part twice."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trimtab_bench import BenchOptions, fewshot, fewshot_protocol as protocol, run_bench
from trimtab_bench.fewshot_protocol import Fold
from trimtab_bench.harness import one_thread_each

from trimtab.predict.fewshot.blend import Blend
from trimtab.predict.fewshot.case import Case, Corpus, metrics_table, settings_table
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS
from trimtab.predict.fewshot.predictor import Predictor
from trimtab.predict.fewshot.rules import MeanOfKnown, Stretch

QUICK = BenchOptions(quick=True, quiet=True)
TESTS = fewshot.TESTS
METHODS: dict[str, Predictor] = {
    "mean_of_known": MeanOfKnown(),
    "cpu_share": Stretch(),
    "trimtab": Blend(members=(Curves(),), rules=(), episodes=12),
}
SHARES = np.array([0.1, 0.2, 0.4, 0.8, 1.6])


def _folds(applications: int = 4, sizes: int = 5, seed: int = 0) -> list[Fold]:
    """Functions that wait and compute, left out one by one."""
    random = np.random.default_rng(seed)
    cases = []
    for i in range(applications):
        idle, work = np.exp(random.normal(size=2))
        seconds = (idle + work / np.minimum(SHARES, 1.0))[:sizes]
        cases.append(
            Case(
                corpus="made up",
                application=f"f{i}",
                name="",
                environment="lambda",
                configurations=tuple(f"{share:g} CPUs" for share in SHARES[:sizes]),
                settings=settings_table(sizes, memory_bytes=SHARES[:sizes] * 2.0**31, cpus=SHARES[:sizes]),
                metrics=metrics_table(sizes, cpu_user=work / seconds),
                seconds=seconds,
                ok=np.ones(sizes, dtype=bool),
            )
        )
    return protocol.leave_application_out(Corpus("made up", tuple(cases)), draws=2, seed=seed)


def _made_up(name: str, title: str, folds: Callable[..., list[Fold]] | None = None) -> fewshot.Test:
    """The test of that name on made-up functions instead of its data."""
    return replace(TESTS[name], title=title, folds=folds or (lambda data, seed: _folds(seed=seed)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small test and three small methods."""
    monkeypatch.setattr(fewshot, "TESTS", {"functions": _made_up("functions", "made-up functions")})
    for methods in ("METHODS", "QUICK"):
        monkeypatch.setattr(fewshot, methods, METHODS)
    shipped = fewshot._gpu_steps(BenchOptions(shipped=True, quiet=True))  # leaving models out takes long
    monkeypatch.setattr(fewshot, "_gpu_steps", lambda options: shipped)


@pytest.fixture
def fitted(small: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Predictor, str]]:
    """Which method was fitted for which fold, in this process."""
    done: list[tuple[Predictor, str]] = []
    predict = fewshot._predict

    def noted(method: Predictor, fold: Fold) -> Any:
        done.append((method, fold.name))
        return predict(method, fold)

    monkeypatch.setattr(fewshot, "_predict", noted)
    monkeypatch.setattr(fewshot, "two_processes", lambda: nullcontext(ThreadPoolExecutor(1)))
    return done


def test_the_figures_are_errors_by_test_method_and_known_runs(small: None) -> None:
    found = run_bench("fewshot", QUICK).as_json()
    figures = found["figures"]
    assert set(figures) == {"functions", "coverage90"}
    assert set(figures["functions"]) == set(METHODS)
    for by_known in figures["functions"].values():
        assert list(by_known) == ["k1", "k2", "k3"]
        assert all(isinstance(error, float) and error >= 0 for error in by_known.values())
    assert figures["functions"]["cpu_share"]["k1"] == pytest.approx(0.0, abs=1e-6)
    assert figures["functions"]["mean_of_known"]["k1"] > 0.1
    assert list(figures["coverage90"]["functions"]) == ["k1", "k2", "k3"]
    assert 0.0 <= figures["coverage90"]["mean"] <= 1.0
    assert set(found["baselines"]["functions"]) == {"mean_of_known", "cpu_share"}
    assert found["published"]["FLASH, Table 1, FLASH (other data: Lambda)"]["k1"] == 0.046
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_tables_show_every_method_and_every_range(fitted: list[Any]) -> None:
    errors, coverage = fewshot.run(QUICK).tables
    assert errors.title == "made-up functions (functions)"
    assert [row[0] for row in errors.rows] == list(METHODS)
    assert [row[0] for row in coverage.rows] == ["functions"]
    for table in (errors, coverage):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_quick_takes_two_folds_and_thorough_takes_all(fitted: list[tuple[Predictor, str]]) -> None:
    fewshot.run(QUICK)
    assert {fold for _, fold in fitted} == {"f0", "f1"}
    fitted.clear()
    figures = fewshot.run(BenchOptions(quiet=True)).figures
    assert {fold for _, fold in fitted} == {"f0", "f1", "f2", "f3"}
    assert 0 < figures["gpu_steps"]["train_step_median_ape"] < 1
    assert set(figures["speed"]) == {"load_s", "hundred_sizes_s"}
    assert all(seconds > 0 for seconds in figures["speed"].values())


def test_a_second_run_fits_nothing_and_finds_the_same(fitted: list[tuple[Predictor, str]]) -> None:
    first = fewshot.run(QUICK)
    assert len(fitted) == 2 * len(METHODS)
    fitted.clear()
    again = fewshot.run(QUICK)
    assert not fitted
    assert again.as_json() == first.as_json()


def _kept(task: str) -> Path:
    (path,) = Path(os.environ["TRIMTAB_HOME"]).rglob(f"{task}-*.json")
    return path


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.unlink(), id="lost"),
        pytest.param(lambda path: path.write_bytes(b"not what was kept"), id="another file"),
        pytest.param(
            lambda path: path.write_bytes(path.read_bytes()[:200]),
            id="cut short",
        ),
    ],
)
def test_only_a_part_that_is_lost_or_damaged_is_done_again(
    fitted: list[tuple[Predictor, str]], harm: Callable[[Path], object]
) -> None:
    first = fewshot.run(QUICK)
    fitted.clear()
    harm(_kept("functions-trimtab-1"))
    assert fewshot.run(QUICK).as_json() == first.as_json()
    assert fitted == [(METHODS["trimtab"], "f1")]
    fitted.clear()
    fewshot.run(QUICK)
    assert not fitted, "it is kept anew"


def test_another_seed_is_another_run(fitted: list[tuple[Predictor, str]]) -> None:
    first = fewshot.run(QUICK)
    fitted.clear()
    other = fewshot.run(BenchOptions(quick=True, quiet=True, seed=1))
    assert len(fitted) == 2 * len(METHODS)
    assert other.seed == 1
    assert other.figures["functions"] != first.figures["functions"]


def test_a_method_with_other_settings_is_fitted_again(
    fitted: list[tuple[Predictor, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fewshot.run(QUICK)
    fitted.clear()
    narrower = Blend(members=(Curves(),), rules=(), episodes=12, coverage=0.5)
    monkeypatch.setattr(fewshot, "QUICK", {**METHODS, "trimtab": narrower})
    fewshot.run(QUICK)
    assert fitted == [(narrower, "f0"), (narrower, "f1")]


def test_only_tests_that_the_data_is_there_for_are_done(
    fitted: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Path] = []

    def public(data: Path, seed: int) -> list[Fold]:
        asked.append(data)
        return _folds(seed=seed)

    clusters = _made_up("scout", "made-up clusters", public)
    monkeypatch.setattr(fewshot, "TESTS", {**fewshot.TESTS, "scout": clusters})
    elsewhere = BenchOptions(quick=True, quiet=True, data=tmp_path)
    for options in (QUICK, elsewhere):
        assert set(fewshot.run(options).figures) == {"functions", "coverage90"}
        assert not asked
    (tmp_path / "scout").mkdir()
    assert set(fewshot.run(elsewhere).figures) == {"functions", "scout", "coverage90"}
    assert asked == [tmp_path]


def test_without_data_no_test_of_public_data_has_a_fold() -> None:
    for name in TESTS:
        assert bool(fewshot._folds(name, BenchOptions())) == name.startswith("functions")


def _own_functions(folder: Path, applications: int) -> Path:
    """The first of the bundled functions as somebody's own."""
    header, *rows = BUNDLED_FUNCTIONS.read_text(encoding="utf-8").splitlines()
    names = list(dict.fromkeys(row.split(",")[1] for row in rows))[:applications]
    (folder / "functions").mkdir()
    chosen = [row for row in rows if row.split(",")[1] in names]
    (folder / "functions" / "functions.csv").write_text("\n".join([header, *chosen]), encoding="utf-8")
    return folder


def test_own_functions_take_the_place_of_the_bundled_ones(tmp_path: Path) -> None:
    options = BenchOptions(data=_own_functions(tmp_path, 3))
    assert len(fewshot._folds("functions", options)) == 3
    assert len(fewshot._folds("functions", BenchOptions())) == 5


def test_the_bundled_functions_make_folds_of_unseen_applications() -> None:
    for name in ("functions", "functions_env"):
        folds = fewshot._folds(name, BenchOptions())
        assert len(folds) == 5
        for fold in folds:
            met = {episode.case.application for episodes in fold.episodes.values() for episode in episodes}
            assert met
            assert not met & {case.application for case in fold.training}


def test_where_the_law_changes_the_ranges_do_not_count_for_the_mean(
    fitted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = _made_up("functions", "made up")
    covered = iter([0.9, 0.8, 1.0, 0.1, 0.1, 0.1])
    monkeypatch.setattr(fewshot, "TESTS", {"functions": one, "functions_env": one})
    monkeypatch.setattr(fewshot, "_coverage", lambda found: next(covered))
    coverage = fewshot.run(QUICK).figures["coverage90"]
    assert coverage["functions"] == {"k1": 0.9, "k2": 0.8, "k3": 1.0}
    assert coverage["functions_env"] == {"k1": 0.1, "k2": 0.1, "k3": 0.1}
    assert coverage["mean"] == pytest.approx(0.9)


def test_coverage_counts_every_application_the_same() -> None:
    found = protocol.ScoredPredictions(
        application=["a", "a", "a", "b"],
        case=["a", "a", "a", "b"],
        predicted=np.ones(4),
        measured=np.array([1.0, 1.0, 1.0, 9.0]),
        low=np.full(4, 0.5),
        high=np.full(4, 2.0),
    )
    assert fewshot._coverage(found) == 0.5


def test_every_method_is_quick_but_the_networks() -> None:
    assert set(fewshot.METHODS) - set(fewshot.QUICK) == {"sizeless", "flash"}
    assert set(fewshot.QUICK) < set(fewshot.METHODS)


def test_applications_with_few_sizes_are_tested_with_as_many_known_as_they_allow(
    fitted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = _made_up("functions", "three sizes", lambda data, seed: _folds(sizes=3))
    monkeypatch.setattr(fewshot, "TESTS", {"functions": few})
    assert "k1" in fewshot.run(QUICK).figures["functions"]["cpu_share"]


def test_shipped_scores_the_weights_that_come_with_it_and_fits_nothing(fitted: list[Any]) -> None:
    found = fewshot.run(replace(QUICK, shipped=True))
    assert all(isinstance(method, fewshot._AlreadyFitted) for method, _ in fitted)
    assert set(found.figures["functions"]) == {"trimtab"}
    assert list(found.figures["coverage90"]["functions"]) == ["k1", "k2", "k3"]
    assert found.baselines == {"functions": {}}


def test_a_worker_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    control = pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if all(library["num_threads"] == 1 for library in control.threadpool_info()):
        pytest.skip("NumPy computes in one thread here anyway")
    with one_thread_each(), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        libraries = pool.submit(control.threadpool_info).result()
    assert [library["num_threads"] for library in libraries] == [1] * len(libraries)
