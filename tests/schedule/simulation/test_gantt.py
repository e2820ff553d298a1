"""What a chart shows of who held what when."""

from pathlib import Path

import numpy as np
import pytest

from trimtab.schedule import Group, policy, read_trace
from trimtab.schedule.simulation.replay import Replay
from trimtab.schedule.simulation.report import MOST_JOBS, busy, drawn
from trimtab.schedule.simulation.scene import scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

HEADER = "job,submit_s,gpus,duration_s\n"
TWO = (Group("left", "t4", 1, 2, 8, 64e9), Group("right", "a100", 1, 2, 8, 64e9))


def run(folder: Path, text: str, round_seconds: float) -> Replay:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    scene = scene_of(read_trace(path), path, TWO)
    settings = SimulationSettings(round=round_seconds)
    return simulate(scene.jobs, scene.cluster, scene.world(), policy("fifo"), settings)


def test_a_chart_of_thousands_shows_those_who_waited_longest(tmp_path: Path) -> None:
    text = HEADER + "".join(f"j{n},{n},2,600\n" for n in range(MOST_JOBS + 50))
    replay = run(tmp_path, text, 600.0)
    shown = drawn(replay)
    assert len({segment.job for segment in shown.segments}) == MOST_JOBS
    assert "300 of 350" in shown.note
    waited = replay.waited
    left_out = set(range(MOST_JOBS + 50)) - {segment.job for segment in shown.segments}
    assert max(waited[list(left_out)]) <= min(waited[[segment.job for segment in shown.segments]])


def test_groups_are_as_busy_as_their_jobs_held_them(tmp_path: Path) -> None:
    edges, shares = busy(run(tmp_path, HEADER + "a,0,2,600\nb,0,1,300\n", 60.0))
    held = (shares * np.diff(edges)).sum(axis=1) * 2
    assert sorted(held.tolist()) == pytest.approx([300.0, 1200.0])
    assert shares.max() <= 1 + 1e-9
