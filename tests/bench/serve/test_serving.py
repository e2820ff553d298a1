"""A real server under a small load: everything is answered, every event arrives, and nothing stays behind."""

import contextlib
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from trimtab_bench.serve import ceiling, pages, streams
from trimtab_bench.serve.scratch import scratch
from trimtab_bench.serve.serving import READS, WRITES, Effort, bench
from trimtab_bench.serve.world import World

from trimtab.core import TrimtabError

SMALL = Effort(World(200, 1000, 200, 20), 0.2, 1.0, 0.1, 0.5, steps=1, streams=5, pages=2)


@pytest.fixture
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [name for name in ("fastapi", "uvicorn", "uvloop", "nicegui") if not find_spec(name)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; pip install 'trimtab[serve]'")
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))


@pytest.mark.usefixtures("_own_home")
def test_every_operation_is_answered_every_event_arrives_and_nothing_stays_behind(tmp_path: Path) -> None:
    with scratch() as folder, bench(folder, SMALL, 0) as at:
        server = psutil.Process(at.server.process.pid)
        listed = pages.page_figures(at.server, SMALL.size, at.tokens, SMALL.pages, 0)
        with streams.listening(at.server, at.file, at.tokens, SMALL.streams) as listening:
            seen = at.load(100.0, 100.0, 0.2, 1.0, "test")
            listening.close()
        step = at.step(20.0, 0.5)
    assert seen.seen.errors == {}
    assert seen.seen.of(READS).count == seen.seen.of(WRITES).count == 100
    assert {*seen.by_operation((*READS, *WRITES))} == {*READS, *WRITES}
    assert seen.server_cpus > 0 < seen.seen.cpus
    assert listening.figures["complete"] == SMALL.streams
    assert listening.figures["events"] == listening.figures["wanted"] > 0
    assert {name.partition(",")[0] for name in listed} == {*pages.LISTS}
    assert step.errors == 0
    assert ceiling.ceiling([step]) in (0.0, step.reached)
    assert not server.is_running()
    assert list((tmp_path / "bench" / "serve").glob("run-*")) == []


@pytest.mark.usefixtures("_own_home")
def test_what_a_killed_run_left_is_removed_and_a_bench_that_fails_removes_its_own(tmp_path: Path) -> None:
    place = tmp_path / "bench" / "serve"
    nobody = max(psutil.pids()) + 100_000
    (place / f"run-{nobody}" / "home").mkdir(parents=True)
    seen = []
    with contextlib.suppress(TrimtabError), scratch() as folder:
        seen = [each.name == folder.name for each in place.iterdir()]
        raise TrimtabError("stop")
    assert seen == [True]
    assert list(place.iterdir()) == []
