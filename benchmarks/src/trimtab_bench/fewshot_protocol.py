"""Folds, predictions and scores of the few-shot bench, and the serverless-memory data set.

Every protocol returns folds; in a fold no application is both trained on and tested. A predictor gets cases
in which all but the known runs are blanked out. Errors are percentages, which a few cliffs dominate, and log
ratios, which none does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.blend import SHOTS, Episode
from trimtab.predict.fewshot.case import Array, Case, Corpus, metrics_table, settings_table
from trimtab.predict.fewshot.datasets import MeasuredRuns
from trimtab.predict.fewshot.predictor import Predictor, Rows
from trimtab.predict.tables import find_file, read_table

BaseSets = Callable[[Case, Rows, int], Iterable[Sequence[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Cases to train on, and the episodes to meet afterwards, by how many runs are known."""

    name: str
    training: tuple[Case, ...]
    episodes: Mapping[int, tuple[Episode, ...]]


def synthetic_to_real(corpus: Corpus) -> list[Fold]:
    """Serverless A: train on the synthetic functions, meet the real ones; all sets of known sizes."""
    real = corpus.within("real").cases
    return [Fold("real", corpus.within("synthetic").cases, _episodes(real, _all_sets))]


def leave_functions_out(corpus: Corpus, seed: int = 0, together: int = 2) -> list[Fold]:
    """Serverless B: folds of two real functions; train on the other real ones and all synthetic ones."""
    real = corpus.within("real")
    count = -(-len(real.applications) // together)
    return [
        _fold(left_out, corpus, real, _all_sets) for left_out in random_folds(real.applications, count, seed)
    ]


def leave_application_out(corpus: Corpus, draws: int = 10, seed: int = 0) -> list[Fold]:
    """Multicloud and scout: one application at a time, `draws` random sets of known runs for each case."""

    def random_sets(case: Case, measured: Rows, shots: int) -> Iterable[Sequence[int]]:
        # They depend on the seed and the case's name, not on the rest of the corpus.
        random = np.random.default_rng([seed, shots, *case.label.encode()])
        return [np.sort(random.choice(measured, shots, replace=False)).tolist() for _ in range(draws)]

    return [_fold((application,), corpus, corpus, random_sets) for application in corpus.applications]


def functions(corpus: Corpus, environment: str = "lambda", folds: int = 5, seed: int = 0) -> list[Fold]:
    """Completed runs within one environment; applications left out fold by fold, all sets of known sizes."""
    return functions_elsewhere(corpus, environment, environment, folds, seed)


def functions_elsewhere(
    corpus: Corpus, source: str = "lambda", target: str = "openwhisk", folds: int = 5, seed: int = 0
) -> list[Fold]:
    """Train in one environment, meet applications in another that training has seen in neither."""
    completed = corpus.completed()
    training, tested = completed.within(source), completed.within(target)
    return [
        _fold(left_out, training, tested, _all_sets)
        for left_out in random_folds(tested.applications, folds, seed)
    ]


def _fold(left_out: Sequence[str], training: Corpus, tested: Corpus, base_sets: BaseSets) -> Fold:
    """Train on all but the applications left out, and meet those."""
    cases = tuple(case for case in training.cases if case.application not in left_out)
    name = ", ".join(left_out)
    if not cases:
        raise BadInputError(f"without {name} there is no case left to train on; it takes two applications")
    met = tuple(case for case in tested.cases if case.application in left_out)
    return Fold(name, cases, _episodes(met, base_sets))


def _episodes(cases: Sequence[Case], base_sets: BaseSets) -> dict[int, tuple[Episode, ...]]:
    """Episodes by the number of known runs: all of them have a time, and at least one such run is left."""
    measured = [(case, np.flatnonzero(~np.isnan(case.seconds))) for case in cases]
    return {
        shots: tuple(
            Episode(case, np.array(known, dtype=np.intp))
            for case, rows in measured
            if len(rows) > shots
            for known in base_sets(case, rows, shots)
        )
        for shots in SHOTS
    }


def _all_sets(case: Case, measured: Rows, shots: int) -> Iterable[Sequence[int]]:
    return combinations(measured.tolist(), shots)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPredictions:
    """Predicted and measured seconds, with the case and the application each belongs to, and a range."""

    application: Sequence[str]
    case: Sequence[str]
    predicted: Array
    measured: Array
    low: Array | None = None
    high: Array | None = None

    @classmethod
    def join(cls, parts: Sequence["ScoredPredictions"]) -> "ScoredPredictions":
        """All parts, one after the other."""
        lows = [part.low for part in parts if part.low is not None]
        highs = [part.high for part in parts if part.high is not None]
        return cls(
            application=[name for part in parts for name in part.application],
            case=[name for part in parts for name in part.case],
            predicted=np.concatenate([part.predicted for part in parts]),
            measured=np.concatenate([part.measured for part in parts]),
            low=np.concatenate(lows) if len(lows) == len(parts) else None,
            high=np.concatenate(highs) if len(highs) == len(parts) else None,
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors as fractions: 0.1 is ten percent.

    Means are over cases, so that one with many configurations counts as much as one with few; the median is
    over all predictions. The standard error is that of the mean percentage error, over applications.
    """

    mean_ape: float
    median_ape: float
    mean_log_ratio: float
    standard_error: float
    predictions: int


def backtest(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, Scores]:
    """The scores by the number of known runs."""
    return {shots: score(found) for shots, found in predictions(predictor, folds).items()}


def predictions(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, ScoredPredictions]:
    """Every prediction of every fold with the measured time, by the number of known runs.

    A fitted predictor that states intervals (`interval(case, known)`: low, answer and high in seconds) is
    asked for them; any other for its answer alone.
    """
    gathered: dict[int, list[ScoredPredictions]] = {}
    for fold in folds:
        fitted: Any = predictor.fit(fold.training)
        for shots, episodes in fold.episodes.items():
            for episode in episodes:
                case, known, targets = episode.case, episode.known, episode.targets
                low = high = None
                if hasattr(fitted, "interval"):
                    low, seconds, high = fitted.interval(case.known_at(known), known)
                else:
                    seconds = fitted.predict(case.known_at(known), known)
                gathered.setdefault(shots, []).append(
                    ScoredPredictions(
                        application=(case.application,) * len(targets),
                        case=(case.label,) * len(targets),
                        predicted=seconds[targets],
                        measured=case.seconds[targets],
                        low=None if low is None else low[targets],
                        high=None if high is None else high[targets],
                    )
                )
    return {shots: ScoredPredictions.join(parts) for shots, parts in gathered.items()}


def score(predictions: ScoredPredictions) -> Scores:
    """The scores of one run of one method."""
    measured, predicted = predictions.measured, predictions.predicted
    if not measured.size:
        raise BadInputError("there is no prediction to score")
    if not (np.isfinite(predicted) & (predicted > 0)).all():
        raise BadInputError("a predicted time is not a positive number of seconds")
    error = np.abs(predicted / measured - 1.0)
    log_ratio = np.abs(np.log(predicted / measured))
    by_application = _group_means(predictions.application, error)
    count = len(by_application)
    return Scores(
        mean_ape=float(_group_means(predictions.case, error).mean()),
        median_ape=float(np.median(error)),
        mean_log_ratio=float(_group_means(predictions.case, log_ratio).mean()),
        standard_error=float(by_application.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan"),
        predictions=int(measured.size),
    )


def _group_means(groups: Sequence[str], values: Array) -> Array:
    position: NDArray[np.intp] = np.unique(np.array(groups), return_inverse=True)[1]
    return np.asarray(np.bincount(position, values) / np.bincount(position))


_SERVERLESS_COLUMNS = (
    "source", "runtime", "app", "memory_mb", "repetition", "dur_mean", "dur_median", "dur_std", "dur_min",
    "userDiff_mean", "sysDiff_mean", "vContextSwitches_mean", "ivContextSwitches_mean", "fsRead_mean",
    "fsWrite_mean", "netByRx_mean", "netByTx_mean", "heapUsed_mean", "maxRss_mean", "rss_mean",
)  # fmt: skip
_BLOCK = 512.0  # bytes: the unit in which getrusage counts file system traffic


def read_serverless(folder: Path) -> Corpus:
    """Functions in containers of one CPU and eight memory limits: 22 real ones and 30 made of segments.

    The column `repetition` counts inputs, not repeats, so every one is a case of its own. The environment is
    `real` or `synthetic`; an application's name starts with it too. Seconds are the mean of an invocation.
    """
    table = read_table(find_file(folder, "serverless-memory", "serverless_memory.csv"), _SERVERLESS_COLUMNS)
    sources, apps = table.text("source"), table.text("app")
    inputs, sizes = table.text("repetition"), table.positive("memory_mb")
    seconds, limit = table.positive("dur_mean") / 1e3, sizes * 2.0**20
    numbers = table.numbers
    # Node.js reports the resident bytes, Python the KiB by which an invocation raised their peak.
    in_node = np.array(table.columns["runtime"]) == "nodejs"
    memory = np.where(in_node, numbers("rss_mean"), numbers("maxRss_mean") * 1024.0)
    metrics = metrics_table(
        len(table),
        cpu_user=numbers("userDiff_mean") / 1e6 / seconds,
        cpu_system=numbers("sysDiff_mean") / 1e6 / seconds,
        context_switches=numbers("vContextSwitches_mean") / seconds,
        involuntary_switches=numbers("ivContextSwitches_mean") / seconds,
        bytes_read=numbers("fsRead_mean") * _BLOCK / seconds,
        bytes_written=numbers("fsWrite_mean") * _BLOCK / seconds,
        bytes_received=numbers("netByRx_mean") / seconds,
        bytes_sent=numbers("netByTx_mean") / seconds,
        heap_used=numbers("heapUsed_mean"),
        memory_used=memory,
        memory_fraction=memory / limit,
        seconds_deviation=numbers("dur_std") / 1e3 / seconds,
        seconds_least=numbers("dur_min") / 1e3 / seconds,
        seconds_median=numbers("dur_median") / 1e3 / seconds,
    )
    return MeasuredRuns(
        application=[f"{source}/{app}" for source, app in zip(sources, apps, strict=True)],
        name=[f"{app}-{n}" for app, n in zip(apps, inputs, strict=True)],
        environment=sources,
        configuration=[f"{size:g}MB" for size in sizes],
        settings=settings_table(len(table), memory_bytes=limit, cpus=1.0, nodes=1.0, accelerators=0.0),
        metrics=metrics,
        seconds=seconds,
        ok=np.ones(len(table), dtype=bool),
    ).corpus("serverless")
