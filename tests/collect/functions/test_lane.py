"""A lane measures every size: in turns, under either law, whatever becomes of a function."""

import os
import tempfile

import pytest

from trimtab.collect.functions import LAWS, Effort
from trimtab.collect.functions.application import Application, Segment
from trimtab.collect.functions.lane import Lane, _Contestant

pytestmark = pytest.mark.usefixtures("no_group_is_left")
QUICK = Effort(least=2, seconds=0.2, turn=0.05, ceiling=10.0)


def lane(effort: Effort = QUICK) -> Lane:
    return Lane(tuple(sorted(os.sched_getaffinity(0)))[:2], "", effort)


def application(kind: str, **inputs: int) -> Application:
    return Application("f", (Segment(kind, inputs),))


@pytest.fixture(autouse=True)
def _affinity_and_folders() -> object:
    """A lane takes its CPUs; the tests after this one want theirs back."""
    cpus = os.sched_getaffinity(0)
    before = set(os.listdir(tempfile.gettempdir()))
    yield
    os.sched_setaffinity(0, cpus)
    me = f"-{os.getpid()}-"
    assert not [name for name in set(os.listdir(tempfile.gettempdir())) - before if me in name]


@pytest.mark.parametrize("law", sorted(LAWS))
def test_more_memory_buys_a_busy_function_time(law: str) -> None:
    rows = lane().measure(application("floating-point", operations=100_000), LAWS[law], (1024, 128, 2048))
    assert [row.memory_mb for row in rows] == [1024, 128, 2048]
    assert {(row.environment, row.application, row.status) for row in rows} == {(law, "f", "ok")}
    assert rows[1].mean_s > 1.5 * max(rows[0].mean_s, rows[2].mean_s)
    assert all(row.n >= 2 and row.n * row.mean_s >= 0.2 and row.probe_s > 0 for row in rows)
    assert all(row.min_s <= row.median_s <= row.p95_s <= row.p99_s <= row.max_s for row in rows)
    if law == "lambda":
        assert rows[1].mean_s * rows[1].cpus > 0.8 * (rows[1].cpu_user_s + rows[1].cpu_system_s)
        assert rows[1].throttled_s > 0


def test_sizes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[tuple[int, ...]]()
    turn = Lane._turn

    def watched(self: Lane, contestants: list[_Contestant], *rest: object) -> None:
        turns.append(tuple(each.memory_mb for each in contestants))
        turn(self, contestants, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Lane, "_turn", watched)
    lane(Effort(least=4, seconds=0.6, turn=0.05)).measure(
        application("sleep", milliseconds=20), LAWS["lambda"], (128, 256, 1024, 2048)
    )
    assert turns[:3] == [(128, 256), (1024,), (2048,)], "one warm-up each, small ones side by side"
    measured = turns[3:]
    half = len(measured) // 2
    assert set(measured[:half]) == set(measured[half:]) == set(turns[:3]), "all the time"
    assert measured.count((2048,)) > measured.count((128, 256)), "short ones where a size allows it"


def test_a_size_too_small_for_the_function_is_told_and_the_others_go_on() -> None:
    rows = lane().measure(application("decompress", size=40_000_000), LAWS["openwhisk"], (32, 2048))
    assert [row.status for row in rows] == ["out-of-memory", "ok"]
    assert (rows[0].n, rows[0].mean_s) == (0, 0)
    assert rows[1].memory_peak_bytes > 40_000_000


def test_what_takes_too_long_at_a_size_is_told() -> None:
    effort = Effort(least=8, seconds=1.0, turn=0.05, ceiling=0.3)
    (row,) = lane(effort).measure(application("sleep", milliseconds=150), LAWS["lambda"], (1024,))
    assert (row.status, row.n) == ("timed-out", 0)
