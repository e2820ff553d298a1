"""An unseen application's run time from one to three known runs: rules, peers and Trimtab, FLASH's Table 1.

Every method goes through the same folds of seven tests; none is ever shown a run that is not known. Finished
folds are kept, so an interrupted bench continues where it stopped. `--data` is the folder that holds
`multicloud`, `scout`, `serverless-memory` and perhaps other `functions` and `gpu-steps` than Trimtab's own.
`--shipped` scores the shipped weights, which is no test on the data they were learned from.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import trimtab.predict
from trimtab.core import BadInputError
from trimtab.predict import predict, shipped_foundation
from trimtab.predict.fewshot.blend import RULES, SHOTS, TRIMTAB, Blend, FittedBlend
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions, read_multicloud, read_scout
from trimtab.predict.fewshot.forest import ForestPredictor, ForestSettings
from trimtab.predict.fewshot.predictor import Predictor
from trimtab_bench import fewshot_protocol as protocol, gpu_steps
from trimtab_bench.fewshot_networks import Flash, Sizeless
from trimtab_bench.fewshot_protocol import Fold, ScoredPredictions, Scores, read_serverless, score
from trimtab_bench.fewshot_trees import Trees
from trimtab_bench.harness import (
    BenchOptions,
    BenchPart,
    BenchResult,
    Kept,
    Key,
    ResultTable,
    finish,
    seconds_of,
    two_processes,
)

BUNDLED = BUNDLED_FUNCTIONS.parent.parent
FUNCTIONS = Path(BUNDLED_FUNCTIONS.parent.name) / BUNDLED_FUNCTIONS.name
# Tests whose applications come from elsewhere than those trained on: nothing there calibrates an interval.
SHIFTED = ("functions_env", "serverless_a")
_QUICK_FOLDS = 2


@dataclass(frozen=True, slots=True)
class Test:
    """A data set, its folder, its folds by data folder and seed, and the shipped predictor for it."""

    title: str
    folder: str
    folds: Callable[[Path, int], list[Fold]]

    @property
    def corpus(self) -> str:
        """Data set of the shipped predictor."""
        return "functions" if self.folder == "serverless-memory" else self.folder


TESTS: Mapping[str, Test] = {
    "functions": Test(
        "functions, unseen applications, Lambda's law",
        "functions",
        lambda data, seed: protocol.functions(read_functions(data / FUNCTIONS), seed=seed),
    ),
    "functions_env": Test(
        "functions, unseen applications and law (OpenWhisk's)",
        "functions",
        lambda data, seed: protocol.functions_elsewhere(read_functions(data / FUNCTIONS), seed=seed),
    ),
    "serverless_a": Test(
        "serverless-memory A: synthetic to real",
        "serverless-memory",
        lambda data, seed: protocol.synthetic_to_real(read_serverless(data)),
    ),
    "serverless_b": Test(
        "serverless-memory B: two functions left out",
        "serverless-memory",
        lambda data, seed: protocol.leave_functions_out(read_serverless(data), seed=seed),
    ),
    "multicloud_ok": Test(
        "multicloud, completed runs",
        "multicloud",
        lambda data, seed: protocol.leave_application_out(
            read_multicloud(data, completed_only=True), seed=seed
        ),
    ),
    "multicloud_all": Test(
        "multicloud, all runs",
        "multicloud",
        lambda data, seed: protocol.leave_application_out(read_multicloud(data), seed=seed),
    ),
    "scout": Test(
        "scout, clusters",
        "scout",
        lambda data, seed: protocol.leave_application_out(read_scout(data).completed(), seed=seed),
    ),
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
    "FLASH, Table 1, Sizeless (other data: Lambda)": {"k1": 0.36, "k2": 0.4, "k3": 0.336},
    "FLASH, Table 1, FLASH (other data: Lambda)": {"k1": 0.046, "k2": 0.038, "k3": 0.034},
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
    predictions = (
        _predict_shipped(folds, options) if options.shipped else _predict_all(folds, methods, options)
    )
    figures: dict[str, Any] = {}
    coverage: dict[str, Any] = {}
    scores: dict[str, dict[str, dict[int, Scores]]] = {}
    for test in folds:
        scores[test] = {}
        for method in methods:
            parts = [predictions[test, method, str(fold)] for fold in range(len(folds[test]))]
            by_shots = {
                shots: ScoredPredictions.join([ScoredPredictions(**part[str(shots)]) for part in known])
                for shots in SHOTS
                if (known := [part for part in parts if str(shots) in part])
            }
            scores[test][method] = {shots: score(joined) for shots, joined in by_shots.items()}
            if method == TRIMTAB:
                coverage[test] = {f"k{shots}": _coverage(joined) for shots, joined in by_shots.items()}
        figures[test] = {m: {f"k{k}": s.mean_ape for k, s in by.items()} for m, by in scores[test].items()}
    baselines = {t: {m: by for m, by in errors.items() if m != TRIMTAB} for t, errors in figures.items()}
    covered = [value for test in coverage if test not in SHIFTED for value in coverage[test].values()]
    figures["coverage90"] = {**coverage, **({"mean": float(np.mean(covered))} if covered else {})}
    covered_rows = [(test, *(f"{100 * c:.1f} %" for c in by.values())) for test, by in coverage.items()]
    covered_title = "measured times within the stated 90 % range"
    tables = [_errors_table(test, scores[test]) for test in folds]
    tables.append(ResultTable(covered_title, ("test", "k=1", "k=2", "k=3"), covered_rows))
    if not options.quick:
        steps, speed = _gpu_steps(options), prediction_speed()
        figures |= {"gpu_steps": steps.figures, "speed": speed}
        rows = (
            ("loading the weights", f"{1e3 * speed['load_s']:.0f} ms"),
            ("a hundred sizes, with guard and rule", f"{1e3 * speed['hundred_sizes_s']:.1f} ms"),
        )
        tables += [*steps.tables, ResultTable("time of a prediction", ("what", "best of 7"), rows)]
    return BenchResult("fewshot", figures, baselines, PUBLISHED, options.seed, tuple(tables))


def _gpu_steps(options: BenchOptions) -> BenchResult:
    """A model's step time and memory on an H200 from its run on a CPU; on the bundled rows without others."""
    has_steps = options.data is not None and (options.data / "gpu-steps").is_dir()
    return gpu_steps.run(options if has_steps else replace(options, data=None))


def _folds(test: str, options: BenchOptions) -> list[Fold]:
    """The folds of a test; none where its data is missing."""
    folder = _folder(test, options)
    folds = TESTS[test].folds(folder.parent, options.seed) if folder.is_dir() else []
    return folds[:_QUICK_FOLDS] if options.quick else folds


def _folder(test: str, options: BenchOptions) -> Path:
    """Folder of a test's data set; the bundled functions where there are no others."""
    folder = (options.data or BUNDLED) / TESTS[test].folder
    own = BUNDLED / TESTS[test].folder
    return own if own.is_dir() and not folder.is_dir() else folder


def _predict_all(
    folds: Mapping[str, list[Fold]], methods: Mapping[str, Predictor], options: BenchOptions
) -> dict[Key, Any]:
    """Predictions by (test, method, fold): kept ones, and the others computed two at a time."""
    parts = []
    for test in folds:
        for at, fold in enumerate(folds[test]):
            for name, method in methods.items():
                settings = hashlib.sha256(repr(method).encode()).hexdigest()[:8]
                parts.append(BenchPart((test, name, str(at)), partial(_predict, method, fold), settings))
    learned = Path(trimtab.predict.__path__[0])
    code = [*learned.glob("*.py"), *learned.glob("fewshot/*.py"), *Path(__file__).parent.glob("fewshot*.py")]
    folders = sorted({_folder(test, options) for test in folds}, key=lambda folder: folder.name)
    data = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    kept = Kept.of("fewshot", (options.quick, options.seed), [*sorted(code), *data])
    with two_processes() as pool, options.progress(len(parts), "learning and predicting") as announce:
        return finish(parts, kept, announce, pool)


def _predict(method: Predictor, fold: Fold) -> dict[str, dict[str, Any]]:
    """One method's predictions for one fold, as plain lists by the number of known runs."""
    return {
        str(shots): {
            name: None if values is None else np.asarray(values).tolist()
            for name, values in asdict(scored).items()
        }
        for shots, scored in protocol.predictions(method, [fold]).items()
    }


@dataclass(frozen=True, slots=True)
class _AlreadyFitted:
    """A predictor whose fit returns the shipped weights."""

    fitted: FittedBlend
    name: str = TRIMTAB

    def fit(self, cases: Sequence[Case]) -> FittedBlend:
        return self.fitted


def _predict_shipped(folds: Mapping[str, list[Fold]], options: BenchOptions) -> dict[Key, Any]:
    """Predictions by (test, method, fold) of the shipped predictor for each data set."""
    predictors = shipped_foundation().predictors
    tasks = [(test, fold) for test in folds for fold in range(len(folds[test]))]
    return {
        (test, TRIMTAB, str(fold)): _predict(
            _AlreadyFitted(predictors[TESTS[test].corpus]), folds[test][fold]
        )
        for test, fold in options.track(tasks, "predicting")
    }


def _coverage(predictions: ScoredPredictions) -> float:
    """Share of measured times within the stated interval; every application has the same weight."""
    if predictions.low is None or predictions.high is None:
        return float("nan")
    inside = (predictions.low <= predictions.measured) & (predictions.measured <= predictions.high)
    applications = np.array(predictions.application)
    return float(np.mean([inside[applications == name].mean() for name in set(predictions.application)]))


_SIZES = tuple(f"{size}MB" for size in range(130, 3130, 30))
_RUN = {"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "cpu_system": "4ms", "memory_used": "80MB"}


def prediction_speed() -> dict[str, float]:
    """Seconds to load the weights and to predict a hundred sizes; the best of 7."""
    foundation = shipped_foundation()
    application = {"application": "measured once", "environment": "lambda", "observations": [_RUN]}
    works: dict[str, Callable[[], object]] = {
        "load_s": shipped_foundation,
        "hundred_sizes_s": lambda: predict(application, _SIZES, foundation),
    }
    return {name: min(seconds_of(work) for _ in range(7)) for name, work in works.items()}


def _errors_table(test: str, scores: Mapping[str, Mapping[int, Scores]]) -> ResultTable:
    columns = ("method", *(f"k={k} mean APE" for k in SHOTS), "median APE", "mean |log ratio|")
    rows = []
    for method, by in scores.items():
        means = [f"{100 * s.mean_ape:.1f} ± {100 * s.standard_error:.1f} %" for s in by.values()]
        medians = " / ".join(f"{100 * s.median_ape:.1f}" for s in by.values())
        logs = " / ".join(f"{s.mean_log_ratio:.3f}" for s in by.values())
        rows.append((method, *means, f"{medians} %", logs))
    return ResultTable(f"{TESTS[test].title} ({test})", columns, rows)
