"""Remaining run time of jobs on published traces: rule, model, guard, and gradient-boosted trees."""

import csv
import gzip
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.core.units import format_duration
from trimtab.predict import Durations, JobFeatures
from trimtab.schedule import read_trace, read_traces
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable, seconds_of

Floats = NDArray[np.float64]

_LAST = 20  # ended jobs behind the features
_LATEST = 5


def lightgbm_errors(submitted: Floats, seconds: Floats, tenants: Sequence[str], gpus: Floats) -> Floats:
    """Absolute log errors at arrival; the trees learn from jobs that ended before the middle one came."""
    from lightgbm import LGBMRegressor

    features = _features(submitted, seconds, tenants, gpus)
    known = submitted + seconds <= submitted[len(submitted) // 2]
    trees = LGBMRegressor(
        objective="l1", n_estimators=150, learning_rate=0.08, random_state=0, n_jobs=1, verbose=-1
    )
    trees.fit(features[known], np.log(seconds[known]), categorical_feature=[0])
    error: Floats = np.abs(np.asarray(trees.predict(features)) - np.log(seconds))
    return error


def _features(submitted: Floats, seconds: Floats, tenants: Sequence[str], gpus: Floats) -> Floats:
    """Tenant, size, hour of the day, and log seconds of the tenant's last jobs, of any and of this size."""
    codes = {tenant: code for code, tenant in enumerate(sorted(set(tenants)))}
    rows = np.full((len(seconds), 7), np.nan)
    rows[:, 0] = [codes[tenant] for tenant in tenants]
    rows[:, 1], rows[:, 2] = gpus, submitted % 86_400 / 3600
    ended = submitted + seconds
    order, next_end = np.argsort(ended, kind="stable"), 0
    last: dict[tuple[object, ...], deque[float]] = defaultdict(lambda: deque(maxlen=_LAST))
    for row in range(len(seconds)):
        while ended[order[next_end]] <= submitted[row]:
            job = order[next_end]
            last[tenants[job],].append(float(np.log(seconds[job])))
            last[tenants[job], gpus[job]].append(float(np.log(seconds[job])))
            next_end += 1
        for column, key in ((3, (tenants[row],)), (5, (tenants[row], gpus[row]))):
            if last[key]:
                recent = list(last[key])
                rows[row, column : column + 2] = np.median(recent[-_LATEST:]), np.median(recent)
    return rows


AGES = (0.0, 600.0, 3600.0, 21_600.0)
_EVERY = 4  # every so many jobs are predicted
_LEARNING = 0.25  # part of a trace that is only learned from
_QUICK_JOBS, _QUICK_TRACES = 3000, 1
_METHODS = ("rule", "model", "guard")
_KIND = "v100"
_MANY = 2000


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedJobs:
    """Jobs to replay: arrival times, features, work, and the seconds it takes."""

    submitted: Floats
    features: Sequence[JobFeatures]
    work: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RemainingErrors:
    """Predictions in their order: job, age, and by `_METHODS` log errors and whether intervals held."""

    job: NDArray[np.int64]
    age: Floats
    error: Floats
    held: NDArray[np.bool_]

    def figures(self, age: float) -> dict[str, Any]:
        """Mean absolute log error and coverage of each method at an age."""
        at = self.age == age
        return {
            "asked": int(at.sum()),
            "error": dict(zip(_METHODS, self.error[at].mean(axis=0).tolist(), strict=True)),
            "coverage": dict(zip(_METHODS, self.held[at].mean(axis=0).tolist(), strict=True)),
        }


def run(options: BenchOptions) -> BenchResult:
    """Replay the Philly jobs and Gavel's traces."""
    if options.data is None:
        raise BadInputError(
            "bench durations needs --data, a folder with the data sets goodput and gpu-throughput"
        )
    jobs = read_trace(options.data / "goodput" / "philly_trace.csv.gz").jobs
    if options.quick:
        jobs = jobs[:_QUICK_JOBS]
    # Work is in seconds; the trace names neither applications nor users.
    seconds = np.array([(job.work or 0.0) / job.least for job in jobs])
    features = [JobFeatures("", job.workload.tenant, job.least) for job in jobs]
    philly = ReplayedJobs(np.array([job.submitted for job in jobs]), features, seconds, seconds)
    errors = {"philly": _replay(philly, options), "gavel": _gavel(options.data / "gpu-throughput", options)}
    figures: dict[str, Any] = {
        name: {f"{age:g}": part.figures(age) for age in AGES if (part.age == age).any()}
        for name, part in errors.items()
    }
    baselines = _second_half(philly, errors["philly"])
    tables = _tables(figures, baselines)
    durations = Durations()
    for job, work in zip(philly.features[:_MANY], philly.work.tolist(), strict=False):
        durations.ended(job, work)
    left = partial(durations.left_many, philly.features[-_MANY:], philly.work[-_MANY:] / 2)
    figures["left_many_ms"] = min(seconds_of(left) for _ in range(7)) * 1e3
    return BenchResult("durations", figures, baselines, {}, options.seed, tables)


def _gavel(folder: Path, options: BenchOptions) -> RemainingErrors:
    """Each virtual cluster's trace by itself, since its models and steps were drawn for it."""
    speeds = _steps_per_second(folder / "gavel_throughputs.csv.gz")
    traces = [trace for name, trace in read_traces(folder / "gavel_traces.csv.gz").items() if "msr" in name]
    errors = []
    for trace in traces[:_QUICK_TRACES] if options.quick else traces:
        jobs = [job for job in trace.jobs if job.application in speeds]
        work = np.array([job.work or 0.0 for job in jobs])
        seconds = work / np.array([speeds[job.application] for job in jobs])
        features = [JobFeatures(job.application, "", job.least) for job in jobs]
        submitted = np.array([job.submitted for job in jobs])
        errors.append(_replay(ReplayedJobs(submitted, features, work, seconds), options))
    return RemainingErrors(
        *(np.concatenate([getattr(part, name) for part in errors]) for name in RemainingErrors.__slots__)
    )


def _steps_per_second(path: Path) -> dict[str, float]:
    """Steps per second of each application alone on one accelerator."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {
            f"{row['model']}/{float(row['batch_size']):g}" if row["batch_size"] else row["model"]: float(
                row["steps_per_s"]
            )
            for row in csv.DictReader(file)
            if row["accelerator"] == _KIND
            and row["num_gpus"] == "1"
            and not row["other_model"]
            and float(row["steps_per_s"])
        }


def _replay(jobs: ReplayedJobs, options: BenchOptions) -> RemainingErrors:
    """Predict the remaining work of every few jobs at each age, learning from jobs as they end.

    Events are handled in the order of time; at one moment, ends come first.
    """
    count = len(jobs.work)
    chosen = np.arange(int(_LEARNING * count), count)[::_EVERY]
    moments = [jobs.submitted + jobs.seconds]
    rows, row_ages = [np.arange(count)], [np.full(count, -1.0)]
    for age in AGES:
        lasting = chosen[jobs.seconds[chosen] > age]
        moments.append(jobs.submitted[lasting] + age)
        rows.append(lasting)
        row_ages.append(np.full(len(lasting), age))
    times, jobs_at, ages = np.concatenate(moments), np.concatenate(rows), np.concatenate(row_ages)
    durations = Durations()
    answers: list[tuple[int, float, list[float], list[bool]]] = []
    for event in options.track(np.lexsort((ages, times)).tolist(), "replaying"):
        job, at = int(jobs_at[event]), float(ages[event])
        if at < 0.0:
            durations.ended(jobs.features[job], float(jobs.work[job]))
            continue
        done = float(jobs.work[job] * at / jobs.seconds[job])
        answer = durations.guarded(jobs.features[job], done)
        if answer is not None:
            truth = float(jobs.work[job]) - done
            estimates = (answer.rule, answer.model, answer.estimate)
            errors = [abs(float(np.log(max(estimate.value, 1e-9) / truth))) for estimate in estimates]
            answers.append((job, at, errors, [estimate.contains(truth) for estimate in estimates]))
    return RemainingErrors(
        np.array([row[0] for row in answers], dtype=np.int64),
        np.array([row[1] for row in answers]),
        np.array([row[2] for row in answers]).reshape(-1, len(_METHODS)),
        np.array([row[3] for row in answers], dtype=bool).reshape(-1, len(_METHODS)),
    )


def _second_half(jobs: ReplayedJobs, errors: RemainingErrors) -> dict[str, float]:
    """Errors at arrival over the second half, also of LightGBM where it is installed."""
    later = (errors.age == 0.0) & (errors.job >= len(jobs.work) // 2)
    means: dict[str, float] = dict(zip(_METHODS, errors.error[later].mean(axis=0).tolist(), strict=True))
    if find_spec("lightgbm") is None:
        return means
    sizes = np.array([job.gpus for job in jobs.features])
    tenants = [job.tenant for job in jobs.features]
    rival = lightgbm_errors(jobs.submitted, jobs.seconds, tenants, sizes)
    return {**means, "lightgbm": float(rival[errors.job[later]].mean())}


def _tables(figures: dict[str, Any], baselines: dict[str, float]) -> tuple[ResultTable, ...]:
    rows = [
        (
            name,
            format_duration(float(age)),
            f"{at['asked']:,}",
            *(f"{at['error'][method]:.3f}" for method in _METHODS),
            *(f"{at['coverage'][method]:.1%}" for method in _METHODS),
        )
        for name, by_age in figures.items()
        for age, at in by_age.items()
    ]
    columns = ("trace", "age", "asked", *_METHODS, *(f"{method} held" for method in _METHODS))
    title = "What jobs have left: mean absolute log error, and how often 90 % ranges held"
    halves = [(method, f"{error:.3f}") for method, error in baselines.items()]
    return (
        ResultTable(title, columns, rows),
        ResultTable("Philly, second half, at arrival", ("who", "error"), halves),
    )
