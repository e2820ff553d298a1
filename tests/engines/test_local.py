"""Runs on this machine: real processes in real control groups, known after a restart, gone when stopped."""

import contextlib
import json
import math
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from counting import COUNT

from trimtab.core import BadInputError, EngineEvent, Launch, NotFoundError, StorageError, Workload, home
from trimtab.engines import LocalEngine
from trimtab.engines.run_folder import RunFolders
from trimtab.kernel import LimitedGroup, NoGroupError, mounted, read_process
from trimtab.resize import NodeAgent, Pool, Selector

MIB = 2**20
SLEEP = ("sleep", "60")
STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


class Here:
    """An engine whose runs are all stopped at the end."""

    def __init__(self) -> None:
        self.engine = LocalEngine()
        self.runs = list[str]()
        self.seen = list[EngineEvent]()

    def launch(self, *command: str, cpus: float = 0.5, memory: float = 256.0 * MIB) -> str:
        key = f"launch {len(self.runs)}"
        return self.begin(Launch(key, Workload("test", command=command), (("local", 1),), cpus, memory))

    def begin(self, launch: Launch) -> str:
        self.runs.append(self.engine.launch(launch))
        return self.runs[-1]

    def gang(self, *command: str, workers: int = 2, key: str = "gang", **more: float) -> str:
        parts = ((self.engine.nodes()[0].name, workers),)
        each = {"cpus": 0.2, "memory": 64.0 * MIB, **more}
        return self.begin(Launch(key, Workload("test", command=command), parts, **each))

    def python(self, script: str, **limits: float) -> str:
        return self.launch(sys.executable, "-S", "-c", script, **limits)

    def folder(self, run_id: str) -> Path:
        return home() / "engines" / "local" / run_id

    def read(self, run_id: str, name: str) -> str:
        folders = json.loads((self.folder(run_id) / "ground.json").read_text())["folders"]
        return (Path(folders[name.partition(".")[0]]) / name).read_text().strip()

    def events(self, run_id: str, until: str) -> list[EngineEvent]:
        """What the engine tells of a run up to an event."""

        def told() -> list[EngineEvent]:
            self.seen.extend(self.engine.watch())
            return [event for event in self.seen if event.run_id == run_id]

        _until(lambda: any(event.what == until for event in told()))
        return told()


@pytest.fixture
def here() -> Iterator[Here]:
    try:
        with LimitedGroup.create() as group:
            version = group.version
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    if version == 2:
        pytest.skip("these stories are told with version 1")
    place = Here()
    yield place
    for run_id in place.runs:
        place.engine.stop(run_id, 0.5)
    assert not _run_groups() & {f"trimtab-run-{run_id}" for run_id in place.runs}


def _run_groups() -> set[str]:
    hierarchy = mounted()
    assert hierarchy is not None
    names = {name for folder in hierarchy.folders.values() for name in os.listdir(folder)}
    return {name for name in names if name.startswith("trimtab-run-")}


def _until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or found.zombie


@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_waiting_ends_when_a_run_has_ended(here: Here, seconds: str) -> None:
    here.launch("sleep", seconds)
    here.engine.wait(3600.0)
    assert [event.what for event in here.engine.watch()] == ["started", "ended"]


def test_a_command_runs_with_its_environment_and_its_end_is_told_once(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC-3")
    monkeypatch.setenv("GH_PAT", "of nobody's business")
    run_id = here.launch("sh", "-c", 'echo "$TZ $GH_PAT"; echo trouble >&2')
    events = here.events(run_id, "ended")
    assert [event.what for event in events] == ["started", "ended"]
    assert events[0].time <= events[1].time
    assert events[1].detail == "status 0"
    assert here.engine.log(run_id).read_text() == "UTC-3 \ntrouble\n"
    assert list(here.engine.watch()) == []
    assert here.engine.running() == {}


def test_limits_are_the_launchs_as_far_as_the_machine_has_them(here: Here) -> None:
    small, large = here.launch(*SLEEP), here.launch(*SLEEP, cpus=960, memory=2.0**50)
    assert here.read(small, "cpu.cfs_quota_us") == "50000"
    assert here.read(small, "memory.limit_in_bytes") == str(256 * MIB)
    assert int(here.read(large, "cpu.cfs_quota_us")) <= (os.cpu_count() or 1) * 100_000
    assert int(here.read(large, "memory.limit_in_bytes")) < 2**50


def test_a_running_one_is_resized_up_and_down(here: Here) -> None:
    run_id = here.launch(*SLEEP)
    here.engine.resize(run_id, 1.0, 512.0 * MIB)
    assert here.read(run_id, "cpu.cfs_quota_us") == "100000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(512 * MIB)
    here.engine.resize(run_id, 0.25, None)
    assert here.read(run_id, "cpu.cfs_quota_us") == "25000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(512 * MIB)
    here.engine.resize(run_id, None, 64.0 * MIB)
    assert here.read(run_id, "memory.limit_in_bytes") == str(64 * MIB)


def test_a_resize_that_cannot_be_is_refused_and_changes_nothing(here: Here) -> None:
    run_id = here.python("data = bytearray(100_000_000); print(1, flush=True); import time; time.sleep(60)")
    _until(lambda: here.engine.log(run_id).read_text() == "1\n")
    for cpus, memory, named in (
        (960.0, None, "960 CPUs"),
        (0.0, None, "0 CPUs"),
        (math.nan, None, "nan CPUs"),
        (None, -1.0, "-1 B"),
        (1.0, 2.0**60, "1024 PiB"),
    ):
        with pytest.raises(BadInputError, match=f"{run_id}.* {named}"):
            here.engine.resize(run_id, cpus, memory)
    with pytest.raises(BadInputError, match=f"{run_id}.* 32 MiB"):
        here.engine.resize(run_id, 1.0, 32.0 * MIB)
    assert here.read(run_id, "cpu.cfs_quota_us") == "50000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(256 * MIB)


def test_a_kill_for_want_of_memory_is_told_as_such(here: Here) -> None:
    run_id = here.python("data = b'x' * 200_000_000", memory=48.0 * MIB)
    assert here.events(run_id, "failed")[-1].detail == (
        "status 137, out of memory: the kernel killed 1 of its processes"
    )


def test_stopping_ends_everything_even_what_left_the_session_or_ignores_the_signal(here: Here) -> None:
    run_id = here.launch("sh", "-c", f'setsid "{sys.executable}" -S -c "{STUBBORN}" & exec sleep 60')
    _until(lambda: "ready" in here.engine.log(run_id).read_text())
    folders = json.loads((here.folder(run_id) / "ground.json").read_text())["folders"]
    pids = [int(pid) for pid in (Path(folders["memory"]) / "cgroup.procs").read_text().split()]
    assert len(pids) == 2
    here.engine.stop(run_id, 0.5)
    assert all(_gone(pid) for pid in pids)
    assert not any(Path(folder).exists() for folder in folders.values())
    here.engine.stop(run_id)
    events = here.events(run_id, "ended")
    assert [event.what for event in events] == ["started", "ended"]
    assert events[-1].detail.startswith("stopped, status ")


def test_what_a_command_leaves_running_ends_with_it(here: Here) -> None:
    run_id = here.launch("sh", "-c", "setsid sleep 60 & echo $!")
    here.events(run_id, "ended")
    _until(lambda: _gone(int(here.engine.log(run_id).read_text())))


def test_a_restarted_trimtab_knows_its_runs(here: Here) -> None:
    """Trimtab is killed; one run goes on, one ends meanwhile, one is killed with its supervisor."""
    script = """
import sys
from trimtab.core import Launch, Workload
from trimtab.engines import engine
here = engine("local://")
for command in ("exec sleep 60", "exit 5", "exec sleep 61"):
    workload = Workload("w", command=("sh", "-c", command))
    print(here.launch(Launch(command, workload, (("local", 1),), 0.5, 2.0**28)), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        here.runs += [first.stdout.readline().strip() for _ in range(3)]
        first.kill()
    lives, ended, vanishes = here.runs
    start = json.loads((here.folder(vanishes) / "start.json").read_text())
    for pid in (start["keeper"], start["guard"], start["pids"][0]):
        os.kill(pid, signal.SIGKILL)
    (here.folder(vanishes) / "start.json").write_text(json.dumps({**start, "boot": "before"}))
    assert [event.what for event in here.events(vanishes, "lost")] == ["started", "lost"]
    assert [event.detail for event in here.events(ended, "failed")][1:] == ["status 5"]
    assert here.engine.running() == {lives: "exec sleep 60"}
    here.engine = LocalEngine()
    assert list(here.engine.watch()) == []
    here.engine.resize(lives, 0.75, None)
    assert here.read(lives, "cpu.cfs_quota_us") == "75000"
    here.engine.stop(lives)
    assert here.events(lives, "ended")[-1].detail == "stopped, status 143"
    assert here.engine.running() == {}


def test_a_run_whose_keeper_died_goes_on_and_can_be_stopped(here: Here) -> None:
    run_id = here.launch(*SLEEP)
    start = _start(here, run_id)
    os.kill(start["keeper"], signal.SIGKILL)
    _until(lambda: _start(here, run_id)["keeper"] == start["guard"])
    assert here.engine.running() == {run_id: "launch 0"}
    here.engine.stop(run_id)
    assert _gone(start["pids"][0])
    assert here.events(run_id, "ended")[-1].detail == "stopped, status 143"


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("victim", ["keeper", "guard"])
def test_a_dead_supervisor_loses_neither_the_run_nor_its_exit_status(
    here: Here, tmp_path: Path, victim: str, status: int
) -> None:
    """The worker completes after its keeper or guard was killed; its status is known, once."""
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo done; exit {status}"
    run_id = here.launch("sh", "-c", script)
    os.kill(_start(here, run_id)[victim], signal.SIGKILL)
    (tmp_path / "go").touch()
    events = here.events(run_id, "failed" if status else "ended")
    assert [event.detail for event in events[1:]] == [f"status {status}"]
    assert here.engine.log(run_id).read_text() == "done\n"


def test_supervisors_killed_at_any_moment_lose_and_repeat_nothing(here: Here, tmp_path: Path) -> None:
    chance, statuses = random.Random(0), dict[str, int]()
    for number in range(20):
        status = chance.choice([0, 3])
        lasts = f"sleep {chance.uniform(0.0, 0.1):.3f}"
        run_id = here.launch("sh", "-c", f"{lasts}; echo done >> {tmp_path}/{number}; exit {status}")
        statuses[run_id] = status
        victim = _start(here, run_id)[chance.choice(["keeper", "guard"])]
        time.sleep(chance.uniform(0.0, 0.12))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    for run_id, status in statuses.items():
        events = here.events(run_id, "failed" if status else "ended")
        assert [event.detail for event in events[1:]] == [f"status {status}"]
    assert {path.read_text() for path in tmp_path.iterdir() if path.is_file()} == {"done\n"}


def test_a_worker_that_ended_with_its_keeper_is_not_lost(here: Here) -> None:
    """The worker kills its keeper and exits at once: the guard finds only its exit status."""
    run_id = here.launch("sh", "-c", "kill -9 $PPID; exit 4")
    assert here.events(run_id, "failed")[-1].detail == "status 4"


def test_statuses_of_a_gang_survive_a_keeper_that_dies_between_them(here: Here, tmp_path: Path) -> None:
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    run_id = here.gang("sh", "-c", f'[ "$RANK" = 0 ] && exit 0; {wait}; exit 7')
    _until(lambda: (here.folder(run_id) / "exits.json").exists())
    os.kill(_start(here, run_id)["keeper"], signal.SIGKILL)
    (tmp_path / "go").touch()
    assert here.events(run_id, "failed")[-1].detail == "status 7"


def test_a_run_without_supervisors_is_ended_and_counts_as_failed(here: Here) -> None:
    """First its keeper is killed, then the guard that took over; nobody watches the engine's events."""
    run_id = here.launch("sh", "-c", "setsid sleep 60 & sleep 60")
    first = _start(here, run_id)
    os.kill(first["keeper"], signal.SIGKILL)
    _until(lambda: _start(here, run_id)["guard"] not in (0, first["guard"]))
    os.kill(first["guard"], signal.SIGKILL)
    _until(lambda: (here.folder(run_id) / "end.json").exists())
    assert _gone(first["pids"][0])
    assert f"trimtab-run-{run_id}" not in _run_groups()
    assert "supervisors" in here.events(run_id, "failed")[-1].detail


def test_a_run_whose_processes_were_all_killed_at_once_is_ended_by_the_engine(here: Here) -> None:
    run_id = here.launch("sh", "-c", "setsid sleep 60 & sleep 60")
    start = _start(here, run_id)
    for pid in (start["keeper"], start["guard"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (start["keeper"], start["guard"]):
        os.kill(pid, signal.SIGKILL)
    assert "supervisors" in here.events(run_id, "failed")[-1].detail
    assert _gone(start["pids"][0])
    assert here.engine.running() == {}


def test_the_process_that_forks_supervisors_may_be_killed(here: Here) -> None:
    first = here.launch(*SLEEP)
    parent = read_process(_start(here, first)["guard"])
    assert parent is not None
    os.kill(parent.parent, signal.SIGKILL)
    _until(lambda: _gone(parent.parent))
    second = here.launch("true")
    here.events(second, "ended")
    assert first in here.engine.running()


def test_a_command_runs_in_the_runs_group_with_its_environment_only(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_STORE", "postgresql://trimtab:s3cr3t@db/trimtab")
    monkeypatch.setenv("REDIS", "host=x password=s3cr3t")
    workload = Workload("w", command=SLEEP)
    run_id = here.begin(Launch("key", workload, (("local", 1),), 0.5, 2.0**28, 0.0, {"WORD": "one"}))
    look = f"env > {tmp_path}/env; cat /proc/self/cgroup > {tmp_path}/group; echo saved"
    assert here.engine.execute(run_id, ("sh", "-c", look), {}, 30.0) == 0
    environment = (tmp_path / "env").read_text()
    assert "WORD=one\n" in environment
    assert "RANK=0\n" in environment
    assert "s3cr3t" not in environment
    groups = dict(line.split(":")[1:] for line in (tmp_path / "group").read_text().splitlines())
    assert {groups[name] for name in ("memory", "pids")} == {f"/trimtab-run-{run_id}"}
    assert groups["memory"] not in Path("/proc/self/cgroup").read_text()
    assert here.engine.log(run_id).read_text() == "saved\n"
    assert here.engine.execute(run_id, ("sh", "-c", "exit 3"), {}, 30.0) == 3
    assert here.engine.execute(run_id, ("sleep", "60"), {}, 0.1) is None
    with pytest.raises(BadInputError, match="no-such-command"):
        here.engine.execute(run_id, ("no-such-command",), {}, 30.0)
    here.engine.stop(run_id, 0.5)
    with pytest.raises(NotFoundError, match=run_id):
        here.engine.execute(run_id, ("true",), {}, 30.0)


def test_processes_are_limited(here: Here) -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait"
    launch = Launch(
        "key", Workload("w", command=("sh", "-c", script)), (("local", 1),), 0.5, 2.0**28, processes=5
    )
    run_id = here.begin(launch)
    assert here.read(run_id, "pids.max") == "5"
    assert here.events(run_id, "failed")
    assert "fork" in here.engine.log(run_id).read_text().lower()


def test_a_log_keeps_its_last_bytes_and_its_positions(here: Here) -> None:
    script = "yes 0123456789abcde | head -c 8000000; echo the end; exec sleep 60"
    launch = Launch(
        "key", Workload("w", command=("sh", "-c", script)), (("local", 1),), 0.5, 2.0**28, log=200_000.0
    )
    run_id = here.begin(launch)
    log = here.engine.log(run_id)
    _until(lambda: log.stat().st_size == 8_000_008 and log.stat().st_blocks * 512 <= 250_000)
    assert log.read_bytes()[-200_000:].endswith(b"\n0123456789abcde\nthe end\n")
    assert b"\0" not in log.read_bytes()[-200_000:]


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_link_is_not_taken_for_a_log(here: Here, tmp_path: Path, link: Callable[..., None]) -> None:
    run_id = here.launch(*SLEEP)
    other = home() / "other"
    other.write_text("of somebody else")
    log = here.engine.log(run_id)
    log.unlink()
    link(other, log)
    with pytest.raises(StorageError, match=r"output\.log"):
        here.engine.execute(run_id, ("echo", "more"), {}, 30.0)
    assert other.read_text() == "of somebody else"


def test_an_agent_sizes_a_run_and_leaves_it_with_its_own_limits(here: Here) -> None:
    run_id = here.launch(*SLEEP)
    path = f"/trimtab-run-{run_id}"
    agent = NodeAgent([Pool("runs", 0.2, 512.0 * MIB, (Selector(path),))])
    try:
        _until(lambda: agent.step() or here.read(run_id, "cpu.cfs_quota_us") == "20000")
        assert [member.container.cgroup for member in agent.members] == [path]
    finally:
        agent.close()
    assert here.read(run_id, "cpu.cfs_quota_us") == "50000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(256 * MIB)


def test_neither_command_nor_environment_is_kept(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-in-the-environment")
    run_id = here.launch("sh", "-c", "exec sleep 60", "s3cr3t-in-the-command")
    folder = here.folder(run_id)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(here.engine.log(run_id).stat().st_mode) == 0o600
    assert "s3cr3t" not in "".join(file.read_text() for file in folder.iterdir())
    start = json.loads((folder / "start.json").read_text())
    assert b"s3cr3t" not in Path(f"/proc/{start['keeper']}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ((), "command"),
        (("",), "command"),
        (("no-such-command-here",), '"no-such-command-here"'),
        (("/etc/passwd",), '"/etc/passwd"'),
        (("echo", "a\0b"), '"echo".*null byte'),
    ],
    ids=["none", "empty", "unknown", "not executable", "null byte"],
)
def test_what_cannot_be_started_is_refused_and_leaves_nothing(
    here: Here, command: tuple[str, ...], named: str
) -> None:
    run = RunFolders(home() / "engines" / "local").of_key("launch 0")
    with pytest.raises(BadInputError, match=named):
        here.launch(*command)
    assert f"trimtab-run-{run.id}" not in _run_groups()
    assert not home().exists() or not [
        path for path in (home() / "engines" / "local").iterdir() if path.is_dir()
    ]


def test_a_run_that_has_ended_cannot_be_resized(here: Here) -> None:
    run_id = here.launch("true")
    here.events(run_id, "ended")
    with pytest.raises(NotFoundError, match=run_id):
        here.engine.resize(run_id, 0.5, None)


def test_workers_of_a_gang_know_their_places_and_share_the_limits(here: Here) -> None:
    script = 'echo "$RANK/$WORLD_SIZE on $LOCAL_RANK by $MASTER_ADDR:$MASTER_PORT, $NOTE"; exec sleep 60'
    launch = Launch(
        "gang",
        Workload("w", command=("sh", "-c", script)),
        (("local", 3),),
        0.2,
        64.0 * MIB,
        0.0,
        {"NOTE": "x"},
    )
    run_id = here.begin(launch)
    _until(lambda: len(here.engine.log(run_id).read_text().splitlines()) == 3)
    said = sorted(here.engine.log(run_id).read_text().splitlines())
    assert [line.partition(" by ")[0] for line in said] == ["0/3 on 0", "1/3 on 1", "2/3 on 2"]
    (place,) = {line.partition(" by ")[2] for line in said}
    assert place.startswith("127.0.0.1:")
    assert place.endswith(", x")
    assert here.read(run_id, "cpu.cfs_quota_us") == "60000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(3 * 64 * MIB)
    here.engine.resize(run_id, 0.1, 128.0 * MIB)
    assert here.read(run_id, "cpu.cfs_quota_us") == "30000"
    assert here.read(run_id, "memory.limit_in_bytes") == str(3 * 128 * MIB)


def test_when_one_worker_fails_the_others_are_ended_and_its_status_is_the_runs(here: Here) -> None:
    run_id = here.gang("sh", "-c", '[ "$RANK" = 1 ] && exit 3; exec sleep 60', workers=3)
    assert here.events(run_id, "failed")[-1].detail == "status 3"
    assert all(_gone(pid) for pid in _start(here, run_id)["pids"])


def test_a_gang_ends_when_its_last_worker_does(here: Here) -> None:
    run_id = here.gang("sh", "-c", '[ "$RANK" = 0 ] && exit 0; sleep 0.3; echo last')
    assert here.events(run_id, "ended")[-1].detail == "status 0"
    assert here.engine.log(run_id).read_text().endswith("last\n")


def test_workers_have_the_time_they_need_when_they_are_asked_to_end(here: Here) -> None:
    """One ends at once, the other saves its work first; stop() and the supervisor wait for both."""
    slow = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    run_id = here.gang("sh", "-c", f'echo ready; [ "$RANK" = 0 ] && exec sleep 60; {slow}')
    _until(lambda: here.engine.log(run_id).read_text().count("ready") == 3)
    here.engine.stop(run_id, 10.0)
    assert "saved" in here.engine.log(run_id).read_text()
    assert here.events(run_id, "ended")[-1].detail == "stopped, status 143"


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.3, 0.5])
def test_a_launch_killed_at_any_moment_starts_once(here: Here, tmp_path: Path, delay: float) -> None:
    launch = Launch(
        "key",
        Workload("w", command=("sh", "-c", f"echo begun >> {tmp_path}/begun")),
        (("local", 2),),
        0.2,
        2.0**26,
    )
    first = multiprocessing.get_context("fork").Process(target=here.engine.launch, args=(launch,))
    first.start()
    time.sleep(delay)
    first.kill()
    first.join()
    before = here.engine.running()
    run_id = here.begin(launch)
    assert set(before) <= {run_id}
    assert here.events(run_id, "ended")[-1].detail == "status 0"
    assert (tmp_path / "begun").read_text() == "begun\n" * 2
    assert here.engine.running() == {}


@pytest.mark.parametrize("ground", [(), ("ground.json",)], ids=["group written down", "not yet"])
def test_a_launch_broken_off_before_anything_ran_leaves_nothing(here: Here, ground: tuple[str, ...]) -> None:
    """Its folder and group exist, its supervisor was never started."""
    run_id = here.launch(*SLEEP)
    here.engine.stop(run_id)
    for name in ("start.json", "end.json", "told.json", "stopping", *ground):
        (here.folder(run_id) / name).unlink(missing_ok=True)
    here.runs.clear()
    group = LimitedGroup.create(mounted(), f"trimtab-run-{run_id}")
    assert list(here.engine.watch()) == []
    assert here.engine.running() == {}
    assert not here.folder(run_id).exists()
    assert not any(folder.exists() for folder in group.folders.values())


def test_accelerators_are_given_out_and_come_back(here: Here) -> None:
    here.engine = LocalEngine("?nodes=2&gpus=2&accelerator=t4")
    show = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; exec sleep 60')
    both = here.gang(*show, gpus=1, key="both")
    _until(lambda: here.engine.log(both).read_text() == "0,1\n0,1\n")
    with pytest.raises(NotFoundError, match=r"local-1 .*0\.5.* 0, 0"):
        here.gang(*show, gpus=0.5, key="late")
    here.engine.stop(both)
    shares = here.gang(*show, workers=3, gpus=0.5, key="late")
    _until(lambda: sorted(here.engine.log(shares).read_text().split()) == ["0", "0", "1"])


def test_a_killed_job_resumes_from_its_checkpoint_and_ends_with_the_same_result(
    here: Here, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    command = (sys.executable, "-S", "-c", COUNT)
    undisturbed = here.gang(*command, str(whole), workers=1, key="whole")
    first = here.gang(*command, str(broken), workers=1, key="broken, attempt 1")
    _until(lambda: (broken / "checkpoint").exists())
    os.kill(_start(here, first)["pids"][0], signal.SIGKILL)
    assert here.events(first, "failed")[-1].detail == "status 137"
    assert not (broken / "result").exists()
    second = here.gang(*command, str(broken), workers=1, key="broken, attempt 2")
    assert here.events(second, "ended")
    assert here.events(undisturbed, "ended")
    assert here.engine.log(second).read_text().startswith("resumed at ")
    assert (broken / "result").read_text() == (whole / "result").read_text()


def _start(here: Here, run_id: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((here.folder(run_id) / "start.json").read_text())
    return found
