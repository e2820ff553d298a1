"""What a stage would have used with the machine to itself, as a container of its own is sized for that."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from trimtab.core import Profile, format_duration
from trimtab.kernel import thread_waits, tree

_WAITED = "its threads waited for a free core "
_WORTH_TELLING = 0.1  # of a stage's time
_LITTLE_WAITING = 0.05  # of the time; as much is there on a quiet machine too
_NEAR = 4  # samples on either side


class Alone:
    """Looks again and again at the processes that this one has started since.

    Memory: the kernel charges a page of a file to whoever read it first, so a stage that runs after others
    have used the same libraries is charged for none of them; in a fresh container it is. So what its largest
    process has resident counts; only the largest, because processes of one stage share such pages.

    CPU: a stage that waits for cores which others have uses less than it would. So the time that its threads
    were ready to run and did not counts as used, up to all cores there are.
    """

    def __init__(self) -> None:
        self._before = {found.pid for found in tree(os.getpid())}
        self._resident: list[float] = []
        self._waits: dict[tuple[int, int], float] = {}
        self._waited: list[float] = []  # seconds in all, at each look

    def look(self) -> None:
        """Note how things are now."""
        started = [found for found in tree(os.getpid()) if found.pid not in self._before]
        self._resident.append(max((found.memory for found in started), default=0.0))
        for found in started:
            for thread, seconds in thread_waits(found.pid).items():
                self._waits[found.pid, thread] = seconds
        self._waited.append(sum(self._waits.values()))

    def corrected(self, profile: Profile) -> Profile:
        """The profile as if nobody else had been there; a note says where that made a difference."""
        series = profile.series
        widths = [after - before for before, after in pairwise((0.0, *series.time))]
        waited = [after - before for before, after in pairwise((0.0, *self._waited))]
        cpu = _wanted(series.cpu, _filled(waited, widths), widths, profile.host.cores)
        memory = [max(pair) for pair in zip(series.memory, _filled(self._resident, widths), strict=True)]
        told = sum(waited) > _WORTH_TELLING * profile.window
        return replace(
            profile,
            series=replace(series, cpu=tuple(cpu), memory=tuple(memory)),
            notes=(*profile.notes, f"{_WAITED}{format_duration(sum(waited))}") if told else profile.notes,
        )


def waiting(profile: Profile) -> str:
    """The note about waiting in a profile; empty where it has none."""
    return next((note for note in profile.notes if note.startswith(_WAITED)), "")


def _wanted(
    used: Sequence[float], waited: Sequence[float], widths: Sequence[float], cores: float
) -> list[float]:
    """Cores used, or wanted where there was waiting.

    The kernel books time that was waited when the waiting ends, so sums over a few samples mean something and
    single ones do not.
    """
    wanted = []
    for number, alone in enumerate(used):
        near = slice(max(0, number - _NEAR), number + _NEAR + 1)
        seconds, waiting = sum(widths[near]), sum(waited[near])
        worked = sum(cpu * width for cpu, width in zip(used[near], widths[near], strict=True))
        crowded = waiting > _LITTLE_WAITING * seconds
        wanted.append(min((worked + waiting) / seconds, max(cores, alone)) if crowded else alone)
    return wanted


def _filled(seen: Sequence[float], samples: Sequence[float]) -> list[float]:
    """As many as there are samples: the last one is taken when the stage has ended, without a look at it."""
    short = seen[: len(samples)]
    return [each for each, _ in zip_longest(short, samples, fillvalue=0.0)]
