"""The page of a simulation, also in a real browser."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, traces_drawn

from trimtab.schedule import NodeGroup, policy, read_trace
from trimtab.schedule.simulation.replay import Replay
from trimtab.schedule.simulation.report import MOST_JOBS, busy, drawn, html_report
from trimtab.schedule.simulation.scene import Scene, scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

HEADER = "job,submit_s,gpus,duration_s\n"
TWO = (NodeGroup("left", "t4", 1, 2, 8, 64e9), NodeGroup("right", "a100", 1, 2, 8, 64e9))


def run(
    folder: Path, text: str, *names: str, groups: Sequence[NodeGroup] = TWO
) -> tuple[Scene, dict[str, Replay]]:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    scene = scene_of(read_trace(path), path, groups)
    settings = SimulationSettings(round=60.0)
    return scene, {
        name: simulate(scene.jobs, scene.cluster, scene.world(), policy(name), settings) for name in names
    }


def test_names_with_markup_are_shown_not_run(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    text = HEADER + "".join(f"{hostile}{n},0,2,600\n" for n in range(4))
    page = html_report(*run(tmp_path, text, "fifo"))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_who_waited_longest_comes_first_with_a_reason(tmp_path: Path) -> None:
    text = HEADER + "early,0,2,600\nbeside,0,2,600\nlate,0,2,600\nshort,0,2,30\n"
    page = html_report(*run(tmp_path, text, "fifo"))
    table = page[page.index("longest waits") :]
    rows = re.findall(r"<tr><td>(\w+)</td><td>default</td>.*?<td>([^<]*)</td></tr>", table)
    assert [name for name, _ in rows] == ["late", "short"]
    assert all(why for _, why in rows)


@pytest.mark.parametrize("priced", [False, True])
def test_dollars_need_prices_and_fairness_needs_tenants(tmp_path: Path, priced: bool) -> None:
    header = "job,submit_s,gpus,duration_s,tenant\n"
    text = f"{header}a,0,2,600,x\nb,0,2,600,y\n" if priced else f"{HEADER}a,0,2,600\nb,0,2,600\n"
    price = 1.0 / 3600 if priced else 0.0
    groups = tuple(replace(group, price=price) for group in TWO)
    page = html_report(*run(tmp_path, text, "fifo", groups=groups))
    assert ("Jain" in page, "<th>Cost" in page or "Cost</th>" in page) == (priced, priced)


def test_the_page_draws_its_charts_offline(tmp_path: Path, browser: Browser) -> None:
    text = HEADER + "".join(f"j{n},{60 * n},{1 + n % 2},{300 + n}\n" for n in range(30))
    page = browser.show(html_report(*run(tmp_path, text, "fifo", "las")), charts=5)
    bars = page.locator(".js-plotly-plot").nth(1).locator(".bars .point").count()
    assert browser.problems == []
    # Completion by policy; then groups, in two charts of each policy.
    assert traces_drawn(page) == [2, 2, 2, 2, 2]
    assert bars == 30


GANTT_HEADER = "job,submit_s,gpus,duration_s\n"
GANTT_TWO = (NodeGroup("left", "t4", 1, 2, 8, 64e9), NodeGroup("right", "a100", 1, 2, 8, 64e9))


def run_gantt(folder: Path, text: str, round_seconds: float) -> Replay:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    scene = scene_of(read_trace(path), path, GANTT_TWO)
    settings = SimulationSettings(round=round_seconds)
    return simulate(scene.jobs, scene.cluster, scene.world(), policy("fifo"), settings)


def test_a_chart_of_thousands_shows_those_who_waited_longest(tmp_path: Path) -> None:
    text = GANTT_HEADER + "".join(f"j{n},{n},2,600\n" for n in range(MOST_JOBS + 50))
    replay = run_gantt(tmp_path, text, 600.0)
    bars, note = drawn(replay)
    assert len({segment.job for segment in bars}) == MOST_JOBS
    assert "300 of 350" in note
    waited = replay.waited
    left_out = set(range(MOST_JOBS + 50)) - {segment.job for segment in bars}
    assert max(waited[list(left_out)]) <= min(waited[[segment.job for segment in bars]])


def test_groups_are_as_busy_as_their_jobs_held_them(tmp_path: Path) -> None:
    edges, shares = busy(run_gantt(tmp_path, GANTT_HEADER + "a,0,2,600\nb,0,1,300\n", 60.0))
    held = (shares * np.diff(edges)).sum(axis=1) * 2
    assert sorted(held.tolist()) == pytest.approx([300.0, 1200.0])
    assert shares.max() <= 1 + 1e-9
