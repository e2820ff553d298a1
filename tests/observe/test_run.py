"""How a command is ended."""

import signal
import sys
import time

import pytest
import scripts

from trimtab.observe.run import CommandRun

STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, {terminate})
print("ready", flush=True)
while True: time.sleep(0.1)
"""


@pytest.fixture(params=["group", "tree"])
def containment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tree":
        monkeypatch.setattr("trimtab.observe.run.Group", scripts.NoGroups)
    return str(request.param)


def wait_until_ready(capfd: pytest.CaptureFixture[str]) -> None:
    while "ready" not in capfd.readouterr().out:
        time.sleep(0.02)


def test_an_interrupt_is_enough_for_most(containment: str) -> None:
    with CommandRun(("sleep", "60"), {}) as run:
        run.stop(grace=2)
        assert (run.ended_by, run.status()) == (signal.SIGINT, 130)
        assert run.members() == []


def test_a_command_that_ignores_interrupts_is_terminated(
    containment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with CommandRun((sys.executable, "-c", STUBBORN.format(terminate="signal.SIG_DFL")), {}) as run:
        wait_until_ready(capfd)
        run.stop(grace=0.3)
        assert (run.ended_by, run.status()) == (signal.SIGTERM, 143)


def test_a_command_that_ignores_everything_is_killed(
    containment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with CommandRun((sys.executable, "-c", STUBBORN.format(terminate="signal.SIG_IGN")), {}) as run:
        wait_until_ready(capfd)
        run.stop(grace=0.3)
        assert (run.ended_by, run.status()) == (signal.SIGKILL, 137)


def test_what_a_command_leaves_in_the_background_is_ended_with_it(containment: str) -> None:
    with CommandRun(("sh", "-c", "sleep 60 & sleep 60 & sleep 0.2; exit 4"), {}) as run:
        while run.status() is None:
            run.members()
            time.sleep(0.02)
        background = run.members()
        assert len(background) == 2
        run.stop(grace=2)
        assert (run.ended_by, run.status()) == (None, 4)
        assert run.members() == []


def test_leaving_the_context_by_an_error_leaves_nothing(containment: str) -> None:
    def fail() -> None:
        with CommandRun(("sleep", "60"), {}) as run:
            members.extend(run.members())
            runs.append(run)
            raise RuntimeError("something else went wrong")

    runs: list[CommandRun] = []
    members: list[object] = []
    with pytest.raises(RuntimeError):
        fail()
    assert members
    assert runs[0].status() == 137
