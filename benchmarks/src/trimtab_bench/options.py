"""How a bench is asked for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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
