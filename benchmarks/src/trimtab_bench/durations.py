"""Remaining job durations: rule, model, guard, and gradient-boosted trees as a rival, on published traces."""

import csv
import gzip
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.core.units import format_duration
from trimtab.predict import Durations, JobFeatures
from trimtab.schedule import Job, read_trace, read_traces
from trimtab_bench.harness import BenchOptions, BenchResult, Table

Floats = NDArray[np.float64]

_LAST = 20  # ended jobs behind the features
_LATEST = 5


def lightgbm_errors(submitted: Floats, seconds: Floats, tenants: Sequence[str], gpus: Floats) -> Floats:
    """Absolute log errors of every job at arrival, by trees that saw what ended before the middle came."""
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
    """Tenant, size, hour of the day, and what the tenant's last jobs took, of this size and of any."""
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
_ASKED = 4  # every so many jobs are asked about
_LEARNING = 0.25  # part of a trace that is only learned from
_QUICK_JOBS, _QUICK_TRACES = 3000, 1
_WHO = ("rule", "model", "guard")
_KIND = "v100"
_MANY = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """Jobs to replay: when they come, what they are, how much work they have and how long that takes."""

    submitted: Floats
    features: Sequence[JobFeatures]
    work: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Answers in the order they were asked for: job, age, errors and whether ranges held, by `_WHO`."""

    job: NDArray[np.int64]
    age: Floats
    error: Floats
    held: NDArray[np.bool_]

    def figures(self, age: float) -> dict[str, Any]:
        """Mean absolute log error and coverage of each at an age."""
        at = self.age == age
        return {
            "asked": int(at.sum()),
            "error": dict(zip(_WHO, self.error[at].mean(axis=0).tolist(), strict=True)),
            "coverage": dict(zip(_WHO, self.held[at].mean(axis=0).tolist(), strict=True)),
        }


def run(options: BenchOptions) -> BenchResult:
    """Replay the Philly jobs and Gavel's traces."""
    if options.data is None:
        raise BadInputError(
            "bench durations needs --data, a folder with the data sets goodput and gpu-throughput"
        )
    jobs = read_trace(options.data / "goodput" / "philly_trace.csv.gz").jobs
    philly = _philly(jobs[:_QUICK_JOBS] if options.quick else jobs)
    asked = {"philly": _replay(philly, options), "gavel": _gavel(options.data / "gpu-throughput", options)}
    ages = {name: [age for age in AGES if (found.age == age).any()] for name, found in asked.items()}
    figures: dict[str, Any] = {
        name: {f"{age:g}": asked[name].figures(age) for age in ages[name]} for name in asked
    }
    baselines = _second_half(philly, asked["philly"])
    tables = _tables(figures, baselines)
    figures["left_many_ms"] = _many_seconds(philly) * 1e3
    return BenchResult("durations", figures, baselines, {}, options.seed, tables)


def _many_seconds(jobs: Replayed) -> float:
    """How long an answer for 2,000 jobs takes when as many have ended; the best of several."""
    durations = Durations()
    for features, work in zip(jobs.features[:_MANY], jobs.work.tolist(), strict=False):
        durations.ended(features, work)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        durations.left_many(jobs.features[-_MANY:], jobs.work[-_MANY:] / 2)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _philly(jobs: Sequence[Job]) -> Replayed:
    """Work is in seconds; nobody told applications or users."""
    seconds = np.array([(job.work or 0.0) / job.least for job in jobs])
    features = [JobFeatures("", job.workload.tenant, job.least) for job in jobs]
    return Replayed(np.array([job.submitted for job in jobs]), features, seconds, seconds)


def _gavel(folder: Path, options: BenchOptions) -> Asked:
    """Each virtual cluster's trace by itself, since models and steps of each were drawn for it."""
    speeds = _steps_per_second(folder / "gavel_throughputs.csv.gz")
    traces = [trace for name, trace in read_traces(folder / "gavel_traces.csv.gz").items() if "msr" in name]
    found = []
    for trace in traces[:_QUICK_TRACES] if options.quick else traces:
        jobs = [job for job in trace.jobs if job.application in speeds]
        work = np.array([job.work or 0.0 for job in jobs])
        seconds = work / np.array([speeds[job.application] for job in jobs])
        features = [JobFeatures(job.application, "", job.least) for job in jobs]
        found.append(
            _replay(Replayed(np.array([j.submitted for j in jobs]), features, work, seconds), options)
        )
    return Asked(
        np.concatenate([each.job for each in found]),
        np.concatenate([each.age for each in found]),
        np.concatenate([each.error for each in found]),
        np.concatenate([each.held for each in found]),
    )


def _steps_per_second(path: Path) -> dict[str, float]:
    """Of each application on one accelerator, alone."""
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


def _replay(jobs: Replayed, options: BenchOptions) -> Asked:
    """Everything that happens, in order; at one moment ends come first."""
    count = len(jobs.work)
    chosen = np.arange(int(_LEARNING * count), count)[::_ASKED]
    when = [jobs.submitted + jobs.seconds]
    who, age = [np.arange(count)], [np.full(count, -1.0)]
    for each in AGES:
        lasting = chosen[jobs.seconds[chosen] > each]
        when.append(jobs.submitted[lasting] + each)
        who.append(lasting)
        age.append(np.full(len(lasting), each))
    times, jobs_at, ages = np.concatenate(when), np.concatenate(who), np.concatenate(age)
    durations = Durations()
    found: list[tuple[int, float, list[float], list[bool]]] = []
    order = np.lexsort((ages, times)).tolist()
    for event in options.track(order, "replaying"):
        job, at = int(jobs_at[event]), float(ages[event])
        if at < 0.0:
            durations.ended(jobs.features[job], float(jobs.work[job]))
            continue
        done = float(jobs.work[job] * at / jobs.seconds[job])
        answer = durations.guarded(jobs.features[job], done)
        if answer is not None:
            truth = float(jobs.work[job]) - done
            said = (answer.rule, answer.model, answer.estimate)
            errors = [abs(float(np.log(max(each.value, 1e-9) / truth))) for each in said]
            found.append((job, at, errors, [each.contains(truth) for each in said]))
    return Asked(
        np.array([row[0] for row in found], dtype=np.int64),
        np.array([row[1] for row in found]),
        np.array([row[2] for row in found]).reshape(-1, len(_WHO)),
        np.array([row[3] for row in found], dtype=bool).reshape(-1, len(_WHO)),
    )


def _second_half(jobs: Replayed, asked: Asked) -> dict[str, float]:
    """Errors at arrival over the second half, also of LightGBM where it is installed."""
    later = (asked.age == 0.0) & (asked.job >= len(jobs.work) // 2)
    errors = dict(zip(_WHO, asked.error[later].mean(axis=0).tolist(), strict=True))
    if find_spec("lightgbm") is None:
        return errors
    sizes = np.array([each.gpus for each in jobs.features])
    tenants = [each.tenant for each in jobs.features]
    every = lightgbm_errors(jobs.submitted, jobs.seconds, tenants, sizes)
    return {**errors, "lightgbm": float(every[asked.job[later]].mean())}


def _tables(figures: dict[str, Any], baselines: dict[str, float]) -> tuple[Table, ...]:
    rows = [
        (
            name,
            format_duration(float(age)),
            f"{at['asked']:,}",
            *(f"{at['error'][who]:.3f}" for who in _WHO),
            *(f"{at['coverage'][who]:.1%}" for who in _WHO),
        )
        for name, by_age in figures.items()
        for age, at in by_age.items()
    ]
    columns = ("trace", "age", "asked", *_WHO, *(f"{who} held" for who in _WHO))
    halves = tuple((who, f"{error:.3f}") for who, error in baselines.items())
    return (
        Table(
            "What jobs have left: mean absolute log error, and how often 90 % ranges held",
            columns,
            tuple(rows),
        ),
        Table("Philly, second half, at arrival", ("who", "error"), halves),
    )
