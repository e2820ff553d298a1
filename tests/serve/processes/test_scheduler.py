"""The scheduler's process: at its post, told of, started again, and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from companions import companions
from driven_loop import until

from trimtab.core import TrimtabError
from trimtab.serve import Settings, scheduler_process

ALONE = """
import os, signal
from trimtab.serve import Settings, scheduler_process
with scheduler_process(Settings(store={store!r})) as beside:
    beside.wait()
    print("ready", flush=True)
    signal.pause()
"""


def schedulers(of: int) -> list[psutil.Process]:
    return companions(of, "processes.scheduler")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    return Settings(store=f"sqlite:///{tmp_path}/store.sqlite")


def test_it_leads_is_started_again_when_it_is_killed_and_ends_with_the_block(settings: Settings) -> None:
    with scheduler_process(settings) as beside:
        beside.wait()
        until(beside.leads)
        until(lambda: beside.round_seconds() > 0)
        (first,) = schedulers(os.getpid())
        first.kill()
        until(lambda: not beside.leads())
        until(beside.leads)
        assert first not in schedulers(os.getpid())
    assert schedulers(os.getpid()) == []
    assert not beside.leads()


def test_a_second_one_on_a_file_and_a_wrong_name_are_told_in_a_sentence(settings: Settings) -> None:
    with scheduler_process(settings) as beside:
        beside.wait()
        with (
            scheduler_process(settings) as second,
            pytest.raises(TrimtabError, match="scheduler"),
        ):
            second.wait()
    with (
        scheduler_process(Settings(store=settings.store, policy="luck")) as wrong,
        pytest.raises(TrimtabError, match="luck"),
    ):
        wrong.wait()


def test_who_is_killed_leaves_no_scheduler_behind(settings: Settings) -> None:
    command = [sys.executable, "-c", ALONE.format(store=settings.store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            (scheduler,) = schedulers(child.pid)
        finally:
            child.send_signal(signal.SIGKILL)
        until(lambda: not scheduler.is_running() or scheduler.status() == psutil.STATUS_ZOMBIE)
