"""What every bench shares: options, results, goals, finished parts kept on disk, threads."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    `shipped` scores what ships with Trimtab without fitting anything; `quiet` hides the progress bar;
    `workloads` is a file of workloads instead of those that the bench of scheduling lists."""

    quick: bool = False
    data: Path | None = None
    shipped: bool = False
    seed: int = 0
    quiet: bool = False
    workloads: Path | None = None

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        """The items, with a progress bar on standard error while they last."""
        if self.quiet:
            return items
        from rich.console import Console
        from rich.progress import track

        return track(items, description, console=Console(stderr=True), transient=True)

    @contextmanager
    def progress(self, total: int, description: str) -> Iterator[Callable[[object], None]]:
        """The same bar for work that announces each of its `total` parts by calling back."""
        if self.quiet:
            yield lambda part: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task(description, total=total)
            yield lambda part: bars.advance(bar)


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people; cells are printed as they are."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """`figures` are ours, `baselines` the rules and peers in the same run, `published` what papers say."""

    bench: str
    figures: dict[str, Any]
    baselines: dict[str, Any]
    published: dict[str, Any]
    seed: int
    tables: tuple[Table, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """The contract of `--json`: one object with exactly these keys."""
        return {
            "bench": self.bench,
            "figures": self.figures,
            "baselines": self.baselines,
            "published": self.published,
            "seed": self.seed,
        }


_WORDS: dict[Callable[[float, float], bool], str] = {ge: "at least", le: "at most", lt: "less than"}


class Goal(NamedTuple):
    """A figure, and what it is held against: `compare` is `ge`, `le` or `lt` of the module operator."""

    name: str
    value: float
    compare: Callable[[float, float], bool]
    wanted: float


def judged(goals: Iterable[Goal]) -> dict[str, dict[str, Any]]:
    """Every goal by name: its value, what is wanted, and whether that was reached."""
    return {
        goal.name: {
            "value": goal.value,
            "wanted": f"{_WORDS[goal.compare]} {goal.wanted:g}",
            "met": goal.compare(goal.value, goal.wanted),
        }
        for goal in goals
    }


def goals_table(found: Mapping[str, Mapping[str, Any]], title: str = "What was aimed at") -> Table:
    """Goals that were judged, for people."""
    rows = tuple(
        (name, f"{each['value']:,.3f}", each["wanted"], "yes" if each["met"] else "no")
        for name, each in found.items()
    )
    return Table(title, ("goal", "reached", "wanted", "met"), rows)


Key = tuple[str, ...]

_SIDE_BY_SIDE = 2  # processes
_CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of a file


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder with a file per finished part, named by what it came from."""

    folder: Path

    @classmethod
    def of(cls, bench: str, made_from: Iterable[bytes]) -> "Kept":
        """Where a bench keeps what is done: `made_from` is all that its parts depend on."""
        digest = hashlib.sha256()
        for piece in made_from:
            digest.update(piece)
        return cls(home() / "bench" / bench / digest.hexdigest()[:16])

    def load(self, name: str) -> bytes | None:
        """A part; None if it has to be done, or what was kept is damaged."""
        path = self.folder / name
        whole = path.read_bytes() if path.exists() else b""
        content, checksum = whole[:-_CHECKSUM], whole[-_CHECKSUM:]
        return content if hashlib.sha256(content).digest() == checksum else None

    def save(self, name: str, content: bytes) -> None:
        """Keep a part."""
        write_whole(self.folder / name, content + hashlib.sha256(content).digest())


@dataclass(frozen=True, slots=True)
class Part:
    """A name such as ("workloads", "saturn-1", "trimtab"), and what to do; `of`: what it depends on."""

    key: Key
    run: Callable[[], Any]
    of: str = ""

    @property
    def file(self) -> str:
        """What it is kept as."""
        return "-".join(re.sub(r"\W+", "_", word) for word in (*self.key, self.of) if word) + ".json"


def done(parts: Iterable[Part], kept: Kept, tell: Callable[[object], None]) -> dict[Key, Any]:
    """What every part answered: before, or now."""
    found = {}
    for part in parts:
        known = kept.load(part.file)
        if known is None:
            known = json.dumps(part.run()).encode()
            kept.save(part.file, known)
        found[part.key] = json.loads(known)
        tell(part)
    return found


def done_side_by_side(parts: Sequence[Part], kept: Kept, tell: Callable[[object], None]) -> dict[Key, Any]:
    """Results of all parts, in their order: those kept, the others computed two at a time in processes."""
    found = dict[Key, Any]()
    for part in parts:
        known = kept.load(part.file)
        if known is not None:
            found[part.key] = json.loads(known)
            tell(part)
    left = [part for part in parts if part.key not in found]
    if left:
        with one_thread_each(), ProcessPoolExecutor(_SIDE_BY_SIDE, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(part.run): part for part in left}
            try:
                for finished in as_completed(running):
                    part = running[finished]
                    answer = json.dumps(finished.result())
                    kept.save(part.file, answer.encode())
                    found[part.key] = json.loads(answer)
                    tell(part)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {part.key: found[part.key] for part in parts}


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """For processes spawned meanwhile: they inherit it before they load a library that starts threads."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
