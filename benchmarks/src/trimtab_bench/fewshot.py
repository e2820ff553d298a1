"""An unseen application's run time from one to three known runs: rules, peers and Trimtab, FLASH's Table 1.

Every method goes through the same folds of seven tests; none is ever shown a run that is not known. A fold
that is finished is kept, so an interrupted bench goes on where it stopped. `--data` is the folder that holds
`multicloud`, `scout`, `serverless-memory` and perhaps other `functions` and `gpu-steps` than Trimtab's own.
`--shipped` scores the weights that come with Trimtab, which is no test on the data they were learned from.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict import shipped_foundation
from trimtab.predict.fewshot.blend import RULES, SHOTS, TRIMTAB, Blend, FittedBlend
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions, read_multicloud, read_scout
from trimtab.predict.fewshot.forest import ForestPredictor, ForestSettings
from trimtab.predict.fewshot.predictor import Predictor
from trimtab_bench import fewshot_protocol as protocol, gpu_steps
from trimtab_bench.fewshot_networks import Flash, Sizeless
from trimtab_bench.fewshot_protocol import (
    Fold,
    ScoredPredictions,
    Scores,
    predictions,
    read_serverless,
    score,
    spread_predictions,
)
from trimtab_bench.fewshot_trees import Trees
from trimtab_bench.finished import Finished
from trimtab_bench.harness import BenchOptions, BenchResult, Table, one_thread_each
from trimtab_bench.prediction_speed import prediction_speed

BUNDLED = BUNDLED_FUNCTIONS.parent.parent
FUNCTIONS = Path(BUNDLED_FUNCTIONS.parent.name) / BUNDLED_FUNCTIONS.name
WORKERS = 2
# Tests whose applications come from elsewhere than those trained on: nothing there calibrates a range.
SHIFTED = ("functions_env", "serverless_a")
_QUICK_FOLDS = 2


@dataclass(frozen=True, slots=True)
class Test:
    """A data set, the folder it is in, how it is split, and which shipped predictor is made for it."""

    title: str
    folder: str
    folds: Callable[[Path, int], list[Fold]]
    corpus: str


def _functions(data: Path, seed: int) -> list[Fold]:
    return protocol.functions(read_functions(data / FUNCTIONS), seed=seed)


def _functions_elsewhere(data: Path, seed: int) -> list[Fold]:
    return protocol.functions_elsewhere(read_functions(data / FUNCTIONS), seed=seed)


def _serverless_a(data: Path, seed: int) -> list[Fold]:
    return protocol.synthetic_to_real(read_serverless(data))


def _serverless_b(data: Path, seed: int) -> list[Fold]:
    return protocol.leave_functions_out(read_serverless(data), seed=seed)


def _multicloud_ok(data: Path, seed: int) -> list[Fold]:
    return protocol.leave_application_out(read_multicloud(data, completed_only=True), seed=seed)


def _multicloud_all(data: Path, seed: int) -> list[Fold]:
    return protocol.leave_application_out(read_multicloud(data), seed=seed)


def _scout(data: Path, seed: int) -> list[Fold]:
    return protocol.leave_application_out(read_scout(data).completed(), seed=seed)


TESTS: Mapping[str, Test] = {
    "functions": Test("functions, unseen applications, Lambda's law", "functions", _functions, "functions"),
    "functions_env": Test(
        "functions, unseen applications and law (OpenWhisk's)", "functions", _functions_elsewhere, "functions"
    ),
    "serverless_a": Test(
        "serverless-memory A: synthetic to real", "serverless-memory", _serverless_a, "functions"
    ),
    "serverless_b": Test(
        "serverless-memory B: two functions left out", "serverless-memory", _serverless_b, "functions"
    ),
    "multicloud_ok": Test("multicloud, completed runs", "multicloud", _multicloud_ok, "multicloud"),
    "multicloud_all": Test("multicloud, all runs", "multicloud", _multicloud_all, "multicloud"),
    "scout": Test("scout, clusters", "scout", _scout, "scout"),
}

METHODS: Mapping[str, Predictor] = {
    **RULES,
    "lightgbm": Trees(),
    "sizeless": Sizeless(),
    "flash": Flash(),
    TRIMTAB: Blend(),
}
QUICK: Mapping[str, Predictor] = {
    **{name: METHODS[name] for name in METHODS if name not in ("sizeless", "flash")},
    "lightgbm": Trees(rounds=60, sets_per_case=10),
    TRIMTAB: Blend(
        members=(Curves(), ForestPredictor(ForestSettings(trees=20), sets_per_case=12)), episodes=60
    ),
}

PUBLISHED = {
    "FLASH, Table 1, Sizeless (other data: Lambda)": {
        "k1": 0.36,
        "k2": 0.4,
        "k3": 0.336,
    },
    "FLASH, Table 1, FLASH (other data: Lambda)": {
        "k1": 0.046,
        "k2": 0.038,
        "k3": 0.034,
    },
    "FLASH, Table 1, Sizeless (other data: OpenWhisk)": {"k1": 0.823, "k2": 0.552, "k3": 0.54},
    "FLASH, Table 1, FLASH (other data: OpenWhisk)": {"k1": 0.357, "k2": 0.263, "k3": 0.275},
    "FLASH, Table 1, Sizeless (CloudBandit, random split)": {"k1": 0.985, "k2": 0.889, "k3": 0.798},
    "FLASH, Table 1, FLASH (CloudBandit, random split)": {"k1": 0.649, "k2": 0.424, "k3": 0.497},
}


def run(options: BenchOptions) -> BenchResult:
    """All methods through all tests that the data is there for; or the shipped weights, fitting nothing."""
    if options.data is not None and not options.data.is_dir():
        raise BadInputError(f"there is no folder {options.data}")
    folds = {name: folds for name in TESTS if (folds := _folds(name, options))}
    methods = {TRIMTAB: METHODS[TRIMTAB]} if options.shipped else QUICK if options.quick else METHODS
    tasks = [(test, method, at) for test in folds for at in range(len(folds[test])) for method in methods]
    found = (
        _score_shipped(tasks, folds, options) if options.shipped else _finish(tasks, folds, methods, options)
    )
    figures: dict[str, Any] = {}
    coverage: dict[str, Any] = {}
    scores: dict[str, dict[str, dict[int, Scores]]] = {}
    for test in folds:
        for method in methods:
            parts = [found[test, method, at] for at in range(len(folds[test]))]
            shots = [k for k in SHOTS if any(k in part for part in parts)]
            by_shots = {k: ScoredPredictions.join([p[k] for p in parts if k in p]) for k in shots}
            scores.setdefault(test, {})[method] = {k: score(each) for k, each in by_shots.items()}
            if method == TRIMTAB:
                coverage[test] = {f"k{k}": _coverage(each) for k, each in by_shots.items()}
        figures[test] = {m: {f"k{k}": s.mean_ape for k, s in by.items()} for m, by in scores[test].items()}
    baselines = {t: {m: by for m, by in each.items() if m != TRIMTAB} for t, each in figures.items()}
    covered = [value for test in coverage if test not in SHIFTED for value in coverage[test].values()]
    figures["coverage90"] = {**coverage, **({"mean": float(np.mean(covered))} if covered else {})}
    tables = [*(_table(test, scores[test]) for test in folds), _coverage_table(coverage)]
    if not options.quick:
        steps = _gpu_steps(options)
        figures |= {"gpu_steps": steps.figures, "speed": prediction_speed()}
        tables += [*steps.tables, _speed_table(figures["speed"])]
    return BenchResult("fewshot", figures, baselines, PUBLISHED, options.seed, tuple(tables))


def _gpu_steps(options: BenchOptions) -> BenchResult:
    """A model's step time and memory on an H200 from its run on a CPU; our own rows without others."""
    given = options.data is not None and (options.data / "gpu-steps").is_dir()
    return gpu_steps.run(options if given else replace(options, data=None))


def _folds(test: str, options: BenchOptions) -> list[Fold]:
    """The folds of a test; none where its data is not there. Without others, it is our own functions."""
    folder = _folder(test, options)
    folds = TESTS[test].folds(folder.parent, options.seed) if folder.is_dir() else []
    return folds[:_QUICK_FOLDS] if options.quick else folds


def _folder(test: str, options: BenchOptions) -> Path:
    """Where a test's data set is; our own functions where there are no others."""
    given = (options.data or BUNDLED) / TESTS[test].folder
    own = BUNDLED / TESTS[test].folder
    return own if own.is_dir() and not given.is_dir() else given


Task = tuple[str, str, int]
ByShots = dict[int, ScoredPredictions]


def _finish(
    tasks: list[Task],
    folds: Mapping[str, list[Fold]],
    methods: Mapping[str, Predictor],
    options: BenchOptions,
) -> dict[Task, ByShots]:
    """Every task's predictions: those kept from before, the others now, two at a time."""
    kept = Finished.of("fewshot", options, [_folder(test, options) for test in folds])
    found = {task: done for task in tasks if (done := kept.load(task, methods[task[1]])) is not None}
    todo = [task for task in tasks if task not in found]
    with (
        one_thread_each(),
        options.progress(len(todo), "learning and predicting") as step,
        ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool,
    ):
        running = {pool.submit(_predict, methods[m], folds[test][at]): (test, m, at) for test, m, at in todo}
        try:
            for finished in as_completed(running):
                task = running[finished]
                found[task] = finished.result()
                kept.save(task, methods[task[1]], found[task])
                step(task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _score_shipped(
    tasks: list[Task], folds: Mapping[str, list[Fold]], options: BenchOptions
) -> dict[Task, ByShots]:
    """The shipped predictor made for each data set; functions' for those of others."""
    predictors = shipped_foundation().predictors
    found = {}
    for task in options.track(tasks, "predicting"):
        test, _, at = task
        found[task] = spread_predictions(_AsShipped(predictors[TESTS[test].corpus]), [folds[test][at]])
    return found


@dataclass(frozen=True, slots=True)
class _AsShipped:
    """A predictor that has learned already."""

    fitted: FittedBlend

    def fit(self, cases: Sequence[Case]) -> FittedBlend:
        return self.fitted


def _predict(method: Predictor, fold: Fold) -> ByShots:
    """One method through one fold; with its ranges where it states any."""
    return spread_predictions(method, [fold]) if isinstance(method, Blend) else predictions(method, [fold])


def _coverage(found: ScoredPredictions) -> float:
    """How much of what was measured lay in the stated range, every application counting the same."""
    if found.low is None or found.high is None:
        return float("nan")
    inside = (found.low <= found.measured) & (found.measured <= found.high)
    applications = np.array(found.application)
    return float(np.mean([inside[applications == name].mean() for name in set(found.application)]))


def _table(test: str, scores: Mapping[str, Mapping[int, Scores]]) -> Table:
    columns = ("method", *(f"k={k} mean APE" for k in SHOTS), "median APE", "mean |log ratio|")
    rows = []
    for method, by in scores.items():
        means = [f"{100 * s.mean_ape:.1f} ± {100 * s.standard_error:.1f} %" for s in by.values()]
        medians = " / ".join(f"{100 * s.median_ape:.1f}" for s in by.values())
        logs = " / ".join(f"{s.mean_log_ratio:.3f}" for s in by.values())
        rows.append((method, *means, f"{medians} %", logs))
    return Table(f"{TESTS[test].title} ({test})", columns, tuple(rows))


def _coverage_table(coverage: Mapping[str, Mapping[str, float]]) -> Table:
    rows = tuple((test, *(f"{100 * value:.1f} %" for value in by.values())) for test, by in coverage.items())
    return Table("measured times within the stated 90 % range", ("test", "k=1", "k=2", "k=3"), rows)


def _speed_table(speed: Mapping[str, float]) -> Table:
    rows = (
        ("loading the weights", f"{1e3 * speed['load_s']:.0f} ms"),
        ("a hundred sizes, with guard and rule", f"{1e3 * speed['hundred_sizes_s']:.1f} ms"),
    )
    return Table("time of a prediction", ("what", "best of 7"), rows)
