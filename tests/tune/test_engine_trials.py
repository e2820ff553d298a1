"""Trials on an engine: real gangs on this machine, and where their workers go on many."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from measured_jobs import write_spec

from trimtab.collect import Shape, Spec, Turn, read_spec
from trimtab.core import Node, NotFoundError
from trimtab.kernel import mounted, processes
from trimtab.tune.job_space import Setup
from trimtab.tune.trials import EngineTrials, Trial, TrialWindow, spread, try_out

MIB = 2.0**20
WIDE = Shape("wide", 0.2, 200 * MIB, 0.018)


def groups() -> set[str]:
    """Control groups of runs that are there now."""
    hierarchy = mounted()
    folders = hierarchy.folders.values() if hierarchy else ()
    return {path.name for folder in folders for path in folder.glob("trimtab-run-*")}


def tried(folder: Path, how: str, workers: int = 1, worth: bool = True, patience: float = 20.0) -> Trial:
    """A trial of a script that runs as `how` says; nothing is left of it."""
    before = groups()
    spec = read_spec(write_spec(folder, how))
    place = EngineTrials("local://", folder / "runs")
    setup = Setup(WIDE, workers, 8)
    trial = try_out(place, spec.job("tune-me"), setup, TrialWindow(0.5, patience), lambda turn: worth)
    assert not [each for each in processes() if str(folder) in _folder(each.pid)]
    assert groups() <= before
    return trial


def _folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


@pytest.fixture(autouse=True)
def _can_limit(new_group: object) -> None:
    """Skips where no control group can be made."""
    new_group()  # type: ignore[operator]


def test_two_workers_are_timed_by_what_the_first_prints(tmp_path: Path) -> None:
    trial = tried(tmp_path, "well", workers=2)
    assert (trial.status, trial.fidelity) == ("ok", 1.0), trial.reason
    assert trial.step_seconds == pytest.approx(0.0036 / 0.2, rel=0.6)
    assert trial.seconds > 0.5
    assert trial.price == pytest.approx(trial.seconds * 2 * 0.018 / 3600)


def test_a_short_look_ends_early(tmp_path: Path) -> None:
    trial = tried(tmp_path, "well", worth=False)
    assert trial.ok
    assert trial.fidelity == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("dies", "failed", "the disk is on fire"),
        ("diverges", "diverged", "not a number"),
        ("greedy", "out-of-memory", "out of memory"),
    ],
)
def test_what_goes_wrong_has_a_reason(tmp_path: Path, how: str, status: str, reason: str) -> None:
    trial = tried(tmp_path, how)
    assert trial.status == status
    assert reason in trial.reason
    assert trial.step_seconds is None


def test_one_that_prints_no_step_is_given_up(tmp_path: Path) -> None:
    trial = tried(tmp_path, "silent", patience=1.0)
    assert trial.status == "no-steps"
    assert "within 1 s" in trial.reason


def test_what_a_killed_session_left_is_ended(tmp_path: Path) -> None:
    spec = read_spec(write_spec(tmp_path))
    place = EngineTrials("local://", tmp_path / "runs")
    setup, effort = Setup(WIDE, 1, 8), TrialWindow(0.5, 20.0)
    before = groups()
    left = place.started(spec.job("tune-me"), setup, effort)
    left.__enter__()  # as a session that never comes to its end
    assert groups() > before
    EngineTrials("local://", tmp_path / "elsewhere").clear()
    assert groups() > before, "others leave it alone"
    EngineTrials("local://", tmp_path / "runs").clear()
    assert groups() <= before


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    before = groups()
    spec: Spec = read_spec(write_spec(tmp_path))

    def interrupted(turn: Turn) -> bool:
        raise KeyboardInterrupt

    place = EngineTrials("local://", tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        try_out(place, spec.job("tune-me"), Setup(WIDE, 1, 8), TrialWindow(0.5, 20.0), interrupted)
    assert groups() <= before


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match='no engine is called "nomad://"'):
        EngineTrials("nomad://", tmp_path)


@given(
    st.lists(st.tuples(st.floats(0.1, 8), st.floats(64, 4096)), max_size=5),
    st.integers(1, 9),
    st.floats(0.1, 4),
    st.floats(32, 2048),
)
def test_workers_go_where_there_is_room(
    sizes: list[tuple[float, float]], workers: int, cpus: float, memory: float
) -> None:
    nodes = [Node(f"n{number}", *size) for number, size in enumerate(sizes)]
    setup = Setup(Shape("s", cpus, memory, 1.0), workers, 1)
    parts = spread(setup, nodes)
    room = {node.name: int(min((node.cpus + 1e-9) / cpus, node.memory / memory)) for node in nodes}
    if parts is None:
        assert sum(room.values()) < workers
        return
    given = dict(parts)
    assert sum(given.values()) == workers
    assert all(count <= room[name] for name, count in given.items())
    fullest = max(given.values())
    assert all(given.get(name, 0) >= min(most, fullest - 1) for name, most in room.items()), "evenly"
