"""The checker: what became of every acknowledged job, event and container."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.store import JobState

ZERO = (
    "lost",
    "concurrent",
    "completed_twice",
    "submitted_twice",
    "events_missed",
    "events_repeated",
    "orphans",
    "tracebacks",
)
"""Figures that must be 0."""

_SHOWN = 20
# Its lines are indented, up to the one with the error.
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\).*\n(?:[ |].*\n)*.*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as the store has it at the end."""

    id: str
    name: str
    state: JobState
    reason: str = ""


def check_jobs(
    acknowledged: Mapping[str, str], stored: Iterable[StoredJob], records: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Figures of acknowledged jobs (names by id), and evidence of what is wrong with which.

    A job is lost if the store does not have it, if it never reaches a final state, or if it counts as ended
    although its command has not done its work.
    """
    jobs = {job.id: job for job in stored}
    counts = Counter((line["job"], line["what"]) for line in records)
    lost, failed = dict[str, str](), dict[str, str]()
    for id, name in acknowledged.items():
        job = jobs.get(id)
        if job is None:
            lost[name] = f"{id} is not in the store"
        elif not job.state.final:
            lost[name] = f"{id} is still {job.state}: {job.reason}"
        elif job.state is JobState.ENDED and not counts[name, "end"]:
            lost[name] = f"{id} has ended, and its command has not done its work"
        elif job.state is not JobState.ENDED:
            failed[name] = f"{id} is {job.state}: {job.reason}"
    names = Counter(job.name for job in jobs.values())
    evidence = {
        "lost": lost,
        "failed": failed,
        "concurrent": sorted({job for job, what in counts if what == "concurrent"}),
        "completed_twice": sorted(job for (job, what), n in counts.items() if what == "end" and n > 1),
        "submitted_twice": sorted(name for name, count in names.items() if count > 1),
    }
    figures = {"acknowledged": len(acknowledged), "ended": len(acknowledged) - len(lost)}
    return figures | {name: len(found) for name, found in evidence.items()}, evidence


def find_tracebacks(logs: Iterable[Path]) -> tuple[int, list[str]]:
    """Number of tracebacks in logs, and the text from the first few."""
    count, texts = 0, list[str]()
    for log in logs:
        text = log.read_text(errors="replace")
        for found in _TRACEBACK.finditer(text):
            count += 1
            if len(texts) < _SHOWN:
                texts.append(f"{log}: {found[0]}")
    return count, texts


def failures(figures: Mapping[str, Any]) -> Sequence[str]:
    """Checks that failed, in words."""
    wrong = [f"{name} = {figures[name]}" for name in ZERO if figures[name]]
    if figures["ended"] != figures["acknowledged"]:
        wrong.append(f"ended = {figures['ended']} of {figures['acknowledged']} acknowledged")
    if not figures["acknowledged"]:
        wrong.append("no job was acknowledged")
    if not figures["managed"]:
        wrong.append("the agent managed no container")
    return wrong
