"""Containers as an agent sizes them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.kernel import LimitedGroup, mounted
from trimtab.serve.dashboard.pages.resize import CONTAINERS, POOLS, container_rows, limits_chart, share
from trimtab.serve.dashboard.widgets import table_rows
from trimtab.serve.operations import PoolNow

BUSY = "while True: sum(range(2000)); __import__('time').sleep(0.01)"


def test_a_container_that_is_sized_is_on_the_page_while_it_runs(
    house: Any, new_group: Callable[..., LimitedGroup], tmp_path: Path
) -> None:
    hierarchy = mounted()
    group = new_group(version=1, below=hierarchy)
    assert hierarchy is not None
    path = f"/{group.folders['cpu'].relative_to(hierarchy.folders['cpu'])}"
    pools = tmp_path / "pools.yaml"
    pools.write_text(f"pools: [{{name: shop, cpu: 1, memory: 256MiB, select: [{{cgroup: {path}}}]}}]")
    trimtab = str(Path(sys.executable).with_name("trimtab"))
    busy = subprocess.Popen([sys.executable, "-S", "-c", BUSY], preexec_fn=lambda: group.add(os.getpid()))
    agent = subprocess.Popen([trimtab, "agent", "--pools", str(pools)], env=house.environment)
    try:
        with house.visitor() as page:
            page.goto(f"{house.url}/resize")
            page.get_by_role("heading", name="Limits and use").wait_for()
            page.get_by_text(path, exact=True).wait_for()
            page.wait_for_function("document.querySelector('.js-plotly-plot .main-svg') !== null")
    finally:
        agent.terminate()
        agent.wait(30)
        busy.kill()
        busy.wait(30)
    assert house.problems == []


def test_rows_and_bars_say_what_is_given_and_used() -> None:
    container = {"path": "/shop/a", "cpus": 0.5, "used_cpus": 0.4, "memory": 2**28, "used_memory": 2**27}
    counts = {"pool": "shop", "throttles": 3, "traps": 1, "refusals": 0}
    pool = PoolNow("shop", 2.0, 2**30, 0.5, 2**28, ({**container, **counts},))
    (row,) = table_rows(POOLS, [pool])
    assert (row["cpus_given"], row["memory_given"]) == (0.25, 0.25)
    (row,) = table_rows(CONTAINERS, container_rows([pool]))
    assert (row["cpu_use_of_it"], row["memory_use_of_it"], row["throttles"], row["traps"]) == (
        0.8,
        0.5,
        "3",
        "1",
    )
    limit, use = limits_chart([pool])["data"]
    assert (limit["y"], use["y"], limit["x"]) == ([0.5], [0.4], ["a"])


@pytest.mark.parametrize(("part", "whole", "expected"), [(1.0, 2.0, 0.5), (3.0, 2.0, 1.0), (1.0, 0.0, None)])
def test_a_share_is_at_most_all_of_it(part: float, whole: float, expected: float | None) -> None:
    assert share(part, whole) == expected
