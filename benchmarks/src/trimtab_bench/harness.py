"""Shared by all benches: options, results, tables, goals, finished parts kept on disk, processes."""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from operator import ge, le, lt
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trimtab.core import home
from trimtab.kernel import write_whole

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`quick` trades precision for time; `data` is a folder of measurements instead of the bundled ones;
    `shipped` scores the shipped constants without fitting anything; `quiet` hides the progress bar;
    `workloads` is a file of workloads that replaces the published ones of the scheduling bench; `minutes` and
    `store` are the length and the database of the chaos bench."""

    quick: bool = False
    data: Path | None = None
    shipped: bool = False
    seed: int = 0
    quiet: bool = False
    workloads: Path | None = None
    minutes: float | None = None
    store: str | None = None

    def track(self, items: Sequence[T], description: str) -> Iterator[T]:
        """The items, with a progress bar on standard error while they are consumed."""
        with self.progress(len(items), description) as announce:
            for item in items:
                yield item
                announce(item)

    @contextmanager
    def progress(self, total: int, description: str) -> Iterator[Callable[[object], None]]:
        """A progress bar on standard error; call the yielded function once for each of `total` parts."""
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, disable=self.quiet) as bars:
            bar = bars.add_task(description, total=total)
            yield lambda part: bars.advance(bar)


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table for people; cells are printed as they are."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    @classmethod
    def of(
        cls, title: str, name: str, rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]
    ) -> "ResultTable":
        """A row for each entry of `rows`: its key in the column `name`, then one cell for each of `columns`,
        whose values are format strings such as `{p99_ms:.1f}` that the entry fills."""
        cells = [
            (str(key), *(form.format_map(row) for form in columns.values())) for key, row in rows.items()
        ]
        return cls(title, (name, *columns), cells)


@dataclass(frozen=True, slots=True)
class BenchResult:
    """`figures` of Trimtab, `baselines` of rules and peers in the same run, `published` ones from papers.

    `failure` says what is wrong where the bench is a test, and this run did not pass it.
    """

    bench: str
    figures: dict[str, Any]
    baselines: dict[str, Any]
    published: dict[str, Any]
    seed: int
    tables: tuple[ResultTable, ...] = ()
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """The contract of `--json`: one object with exactly these keys."""
        return {name: getattr(self, name) for name in ("bench", "figures", "baselines", "published", "seed")}


_COMPARISONS: dict[Callable[[float, float], bool], str] = {ge: "at least", le: "at most", lt: "less than"}


class BenchGoal(NamedTuple):
    """A figure and its bound; `compare` is `ge`, `le` or `lt` of the module operator."""

    name: str
    value: float
    compare: Callable[[float, float], bool]
    bound: float


def judged(goals: Iterable[BenchGoal]) -> dict[str, dict[str, Any]]:
    """Every goal by name: its value, the bound in words, and whether it is met."""
    return {
        goal.name: {
            "value": goal.value,
            "wanted": f"{_COMPARISONS[goal.compare]} {goal.bound:g}",
            "met": goal.compare(goal.value, goal.bound),
        }
        for goal in goals
    }


def goals_table(goals: Mapping[str, Mapping[str, Any]], title: str = "What was aimed at") -> ResultTable:
    """The goals that `judged` returns, one in a row."""
    rows = {name: {**goal, "met": "yes" if goal["met"] else "no"} for name, goal in goals.items()}
    columns = {"reached": "{value:,.3f}", "wanted": "{wanted}", "met": "{met}"}
    return ResultTable.of(title, "goal", rows, columns)


Key = tuple[str, ...]
_CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of a file


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder with a file for each finished part."""

    folder: Path

    @classmethod
    def of(cls, bench: str, settings: object, files: Iterable[Path]) -> "Kept":
        """The folder for these settings and these files' names and content: all that parts depend on."""
        digest = hashlib.sha256(repr(settings).encode())
        for path in files:
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
        return cls(home() / "bench" / bench / digest.hexdigest()[:16])

    def load(self, name: str) -> bytes | None:
        """A part's content; None if it was not finished or its file is damaged."""
        path = self.folder / name
        data = path.read_bytes() if path.exists() else b""
        content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        return content if hashlib.sha256(content).digest() == checksum else None

    def save(self, name: str, content: bytes) -> None:
        """Write a part's file, never half."""
        write_whole(self.folder / name, content + hashlib.sha256(content).digest())


def code_below(*folders: Path) -> list[Path]:
    """All Python files in these folders, in a fixed order."""
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


@dataclass(frozen=True, slots=True)
class BenchPart:
    """A part of a bench: a key such as ("workloads", "saturn-1", "trimtab") and the function to run, which
    returns JSON; `version` names another part of the same key."""

    key: Key
    run: Callable[[], Any]
    version: str = ""

    @property
    def file(self) -> str:
        words = (*self.key, self.version)
        return "-".join(re.sub(r"\W+", "_", word) for word in words if word) + ".json"


def finish(
    parts: Sequence[BenchPart], kept: Kept, announce: Callable[[object], None], pool: Executor | None = None
) -> dict[Key, Any]:
    """Results of all parts, in order: kept ones are loaded, the others run, in `pool` if there is one."""
    results = dict[Key, Any]()
    for part in parts:
        content = kept.load(part.file)
        if content is not None:
            results[part.key] = json.loads(content)
            announce(part)

    def save(part: BenchPart, result: Any) -> None:
        content = json.dumps(result).encode()
        kept.save(part.file, content)
        results[part.key] = json.loads(content)
        announce(part)

    missing = [part for part in parts if part.key not in results]
    if pool is None:
        for part in missing:
            save(part, part.run())
    else:
        running = {pool.submit(part.run): part for part in missing}
        try:
            for future in as_completed(running):
                save(running[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {part.key: results[part.key] for part in parts}


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes spawned in this context use one thread: they inherit it before they load a library."""
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def two_processes() -> Iterator[Executor]:
    """A pool of two spawned processes with one thread each."""
    with one_thread_each(), ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start
