"""A long queue: trivial jobs started per second on this machine, and seconds of a scheduling round."""

import contextlib
import re
import sqlite3
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import TrimtabError
from trimtab.engines.local.engine import LocalEngine
from trimtab_bench.serve.processes import ServerProcess, up

_AT_ONCE = 100  # jobs in one request
_CPUS = 0.1  # of a job: twenty at once on two cores
_LOOK = 0.5  # s
_PATIENCE = 30.0  # s for the last runs to end
_ROUND = re.compile(r"^trimtab_round_seconds ([0-9.e+-]+)$", re.MULTILINE)


def queue_figures(folder: Path, jobs: int, seconds: float) -> dict[str, Any]:
    """Starts per second while so many jobs are queued, and the median and longest round."""
    file = folder / "trimtab.sqlite"
    options = ("--engine", "local://", "--no-dashboard", "--rate-limit", "0")
    with up(folder, f"sqlite:///{file}", *options) as server:
        with server.connection() as ask:
            job = {"name": "trivial", "kind": "batch", "command": ["true"], "resources": {"cpus": _CPUS}}
            for _ in range(jobs // _AT_ONCE):
                ask("POST", "/v1/jobs", {"jobs": [job] * _AT_ONCE})
        before, began, rounds = _started(file), time.monotonic(), list[float]()
        while time.monotonic() < began + seconds:
            time.sleep(_LOOK)
            rounds += _round(server)
        starts = (_started(file) - before) / (time.monotonic() - began)
        left = jobs - _started(file)
    _wait_for_runs(folder)
    return {
        "jobs": jobs,
        "left": left,
        "seconds": seconds,
        "starts_per_s": starts,
        "round_s": float(np.median(rounds)) if rounds else None,
        "longest_round_s": max(rounds, default=None),
    }


def _started(file: Path) -> int:
    """Number of jobs that run or have run."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        (count,) = raw.execute(
            "SELECT count(*) FROM jobs WHERE state NOT IN ('waiting', 'starting')"
        ).fetchone()
        return int(count)


def _round(server: ServerProcess) -> list[float]:
    """Seconds of the scheduler's last round, as its metric says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:  # nosec B310 # loopback
        return [float(text) for text in _ROUND.findall(answer.read().decode())]


def _wait_for_runs(folder: Path) -> None:
    """Wait until what was started has ended, so that no group stays."""
    engine, deadline = LocalEngine(place=folder / "engines" / "local"), time.monotonic() + _PATIENCE
    while left := engine.running():
        if time.monotonic() > deadline:
            raise TrimtabError(f"{len(left)} runs of the bench have not ended after {_PATIENCE:g} s")
        time.sleep(0.1)
