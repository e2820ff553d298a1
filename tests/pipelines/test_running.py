"""Stages that run for real, watched, kept and run again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.core import BadInputError, Host, Profile
from trimtab.kernel import LimitedGroup, thread_waits
from trimtab.pipelines import Pipeline, ProfilingSettings, StageProgress, profile_stages, size
from trimtab.pipelines.running import ContentionCorrection, waiting

BUSY_ALONE = [sys.executable, "-S", "-c", "while True: pass"]


def on_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def test_what_is_resident_counts_where_less_was_charged(used: Callable[..., Profile]) -> None:
    with subprocess.Popen(["sleep", "60"]) as before:
        correction = ContentionCorrection()
        correction.look()
        with subprocess.Popen(["sleep", "60"]) as since:
            correction.look()
            correction.look()
            since.kill()
        before.kill()
    corrected = correction.corrected(used([1.0] * 4, [0.0, 0.0, 2.0**40, 7.0])).series
    assert corrected.memory[0] == 0.0, "a process from before is not the stage's"
    assert 0 < corrected.memory[1] < 2**26
    assert corrected.memory[2:] == (2.0**40, 7.0)


def test_waiting_for_a_core_counts_as_use(used: Callable[..., Profile]) -> None:
    with subprocess.Popen(BUSY_ALONE, preexec_fn=on_one_core) as rival:
        correction = ContentionCorrection()
        with subprocess.Popen(BUSY_ALONE, preexec_fn=on_one_core) as stage:
            deadline = time.monotonic() + 30
            while sum(thread_waits(stage.pid).values()) < 0.3 and time.monotonic() < deadline:
                time.sleep(0.02)
            correction.look()
            stage.kill()
        rival.kill()
    profile = replace(used([0.3] * 20, [1.0] * 20), host=Host("a CPU", 0.32, 1e9), window=0.5)
    corrected = correction.corrected(profile)
    assert 0.3 < corrected.series.cpu[0] <= 0.32, "never more than there is"
    assert corrected.series.cpu[-1] == 0.3, "where it did not wait, what it used"
    assert "waited for a free core" in waiting(corrected)
    assert waiting(profile) == ""


Read = Callable[..., Pipeline]
BUSY = "import time; kept = bytearray(90 << 20); any(time.process_time() > 0.4 for _ in iter(int, 1))"
TWO = """\
stages:
  - {name: load, command: 'echo run >> load.log; cp source.txt raw.txt', outputs: [raw.txt]}
  - {name: train, command: 'echo run >> train.log; cat raw.txt', inputs: [raw.txt]}
"""


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[], tuple[int, int]]:
    """How often the two stages have run."""
    (tmp_path / "source.txt").write_text("data")
    os.utime(tmp_path / "source.txt", (1.0, 1.0))

    def count() -> tuple[int, int]:
        load, train = (tmp_path / f"{name}.log" for name in ("load", "train"))
        return len(load.read_text().split()), len(train.read_text().split())

    return count


def test_a_stage_is_measured_by_itself(pipeline: Read, tmp_path: Path) -> None:
    reports: list[StageProgress] = []
    busy = json.dumps([sys.executable, "-S", "-c", BUSY])
    read = pipeline(f"stages: [{{name: idle, command: sleep 0.3}}, {{name: busy, command: {busy}}}]")
    profiles, made = profile_stages(read, tmp_path / "work", report=reports.append)
    assert made == ("idle", "busy")
    assert max(profiles["idle"].series.memory) < 90 * 2**20 < max(profiles["busy"].series.memory) < 2**28
    assert max(profiles["idle"].series.cpu) < max(profiles["busy"].series.cpu)
    assert profiles["busy"].workload.command == (sys.executable, "-S", "-c", BUSY)
    assert {(item.stage, item.number, item.stages) for item in reports} == {("idle", 1, 2), ("busy", 2, 2)}


def test_a_stage_ends_well_within_what_it_asks_for_and_not_within_less(
    pipeline: Read, tmp_path: Path, new_group: Callable[..., LimitedGroup]
) -> None:
    command = [sys.executable, "-S", "-c", BUSY]
    read = pipeline(f"stages: [{{name: busy, command: {json.dumps(command)}}}]")
    (sized,) = size(read, profile_stages(read, tmp_path / "work")[0])
    ends = []
    for memory in (sized.request.memory, sized.use.memory_peak / 2):
        group = new_group()
        group.limit_memory(memory)
        child = subprocess.Popen(command, preexec_fn=lambda group=group: group.add(os.getpid()))
        ends.append(child.wait(timeout=60))
    assert ends == [0, -signal.SIGKILL]


def test_profiles_are_kept_until_something_changes(
    pipeline: Read, tmp_path: Path, ran: Callable[[], tuple[int, int]]
) -> None:
    work = tmp_path / "work"
    assert profile_stages(pipeline(TWO), work)[1] == ("load", "train")
    assert profile_stages(pipeline(TWO), work)[1] == ()
    assert profile_stages(pipeline(TWO.replace("cat raw", "wc raw")), work)[1] == ("train",)
    assert profile_stages(pipeline(TWO), work, settings=ProfilingSettings(run=False))[1] == ()
    (tmp_path / "raw.txt").unlink()
    assert profile_stages(pipeline(TWO), work)[1] == ("load", "train"), "what it made is gone"
    later = time.time() + 60
    os.utime(tmp_path / "source.txt", (later, later))
    assert profile_stages(pipeline(TWO), work)[1] == ("load", "train"), "a file it names is newer"
    os.utime(tmp_path / "source.txt", (1.0, 1.0))
    assert profile_stages(pipeline(TWO), work, settings=ProfilingSettings(again=True))[1] == ("load", "train")
    (damaged,) = (work / "profiles").glob("load-*.json")
    damaged.write_text("{")
    assert profile_stages(pipeline(TWO), work)[1] == ("load", "train")
    assert ran() == (5, 6)


def test_a_failing_stage_says_which_with_what(pipeline: Read, tmp_path: Path) -> None:
    read = pipeline("stages: [{name: bad, command: 'echo so; echo first >&2; echo no data >&2; exit 3'}]")
    with pytest.raises(BadInputError, match=r'"bad".*3: no data'):
        profile_stages(read, tmp_path / "work")
    assert (tmp_path / "work" / "logs" / "bad.out").read_text() == "so\n"
    assert not (tmp_path / "work" / "profiles").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[{name: a, command: sleep 30}]", 'stage "a" took longer than 200 ms'),
        ("[{name: a, command: [no-such-program]}]", 'there is no program "no-such-program"'),
        ("[{name: a, command: 'true', outputs: [/proc/x/y]}]", 'stage "a" cannot write /proc/x/y: no such'),
        ("[{name: a, command: cat x, inputs: [x]}]", '"a" needs .*x'),
        (
            "[{name: a, command: 'true', outputs: [x]}, {name: b, command: cat x, inputs: [x]}]",
            '"a" .*x',
        ),
    ],
)
def test_what_cannot_be_profiled_is_one_sentence(
    pipeline: Read, tmp_path: Path, text: str, sentence: str
) -> None:
    settings = ProfilingSettings(window=0.2 if "sleep" in text else 600.0)
    with pytest.raises(BadInputError, match=sentence):
        profile_stages(pipeline(f"stages: {text}"), tmp_path / "work", settings=settings)


def test_given_profiles_stand_for_stages_that_are_not_run(
    pipeline: Read, tmp_path: Path, used: Callable[..., Profile]
) -> None:
    profile = used([1.0], [1e6])
    settings = ProfilingSettings(run=False)
    both = {"load": profile, "train": profile}
    assert profile_stages(pipeline(TWO), tmp_path / "work", both, settings) == (both, ())
    with pytest.raises(BadInputError, match=r'"train".*--profile train='):
        profile_stages(pipeline(TWO), tmp_path / "work", {"load": profile}, settings)
    with pytest.raises(BadInputError, match=r'"tran".*train'):
        profile_stages(pipeline(TWO), tmp_path / "work", {"tran": profile})
    with pytest.raises(BadInputError, match='"load"'):
        profile_stages(pipeline(TWO), tmp_path / "work", {"load": profile})
