"""A real server under a small load, and the search for the highest rate that it stands."""

import contextlib
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from trimtab_bench.serve import serving, streams
from trimtab_bench.serve.serving import READS, WRITES, RateStep, ServeEffort, bench, ceiling, steps_to_ceiling
from trimtab_bench.serve.store import StoreSize, scratch

from trimtab.core import TrimtabError

SMALL = ServeEffort(StoreSize(200, 1000, 200, 20), 0.2, 1.0, 0.1, 0.5, steps=1, streams=5, pages=2)


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
        listed = serving.page_figures(at.server, SMALL.size, at.tokens, SMALL.pages, 0)
        with streams.listening(at.server, at.file, at.tokens, SMALL.streams) as listening:
            seen = at.load(100.0, 100.0, 0.2, 1.0, "test")
            listening.close()
        step = at.step(20.0, 0.5)
    assert seen.result.errors == {}
    assert seen.result.of(READS).count == seen.result.of(WRITES).count == 100
    assert {*seen.by_operation((*READS, *WRITES))} == {*READS, *WRITES}
    assert seen.server_cpus > 0 < seen.result.cpus
    assert listening.figures["complete"] == SMALL.streams
    assert listening.figures["events"] == listening.figures["wanted"] > 0
    assert {name.partition(",")[0] for name in listed} == {*serving.LISTS}
    assert step.errors == 0
    assert serving.ceiling([step]) in (0.0, step.reached)
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


def server(stands: float) -> "list[RateStep]":
    return steps_to_ceiling(lambda rate: seen(rate, stands), 1000.0, 10)


def seen(rate: float, stands: float) -> RateStep:
    return RateStep(rate, min(rate, stands), 10.0 if rate <= stands else 900.0, 0, 1.0, 0.1)


def test_it_goes_up_until_a_step_is_too_much() -> None:
    steps = server(stands=1500.0)
    assert [round(step.rate) for step in steps] == [1000, 1200, 1440, 1728]
    assert [step.stood for step in steps] == [True, True, True, False]
    assert round(ceiling(steps)) == 1440


def test_it_goes_down_until_a_step_is_stood() -> None:
    steps = server(stands=800.0)
    assert [step.stood for step in steps] == [False, False, True]
    assert round(ceiling(steps)) == 694


def test_there_is_no_ceiling_where_nothing_is_stood() -> None:
    assert ceiling(server(stands=1.0)) == 0.0
    assert len(server(stands=1.0)) == 10


def test_a_failed_request_or_answers_that_do_not_keep_up_are_too_much() -> None:
    assert not RateStep(1000.0, 1000.0, 5.0, 1, 1.0, 0.1).stood
    assert not RateStep(1000.0, 900.0, 5.0, 0, 1.0, 0.1).stood
    assert not RateStep(1000.0, 1000.0, 50.0, 0, 1.0, 0.1).stood
    assert RateStep(1000.0, 1000.0, 49.9, 0, 1.0, 0.1).stood
