"""Gangs on a real Ray cluster of three nodes on this machine, reached over HTTP, with a way to cut it off."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from small_ray import GIB, NODES, SmallRay, open_ray

from trimtab.core import BadInputError, EngineEvent, Launch, Node, NotFoundError, TrimtabError, Workload
from trimtab.engines.ray.engine import RayCluster, RayEngine, split_notes
from trimtab.kernel import processes

pytestmark = pytest.mark.slow

PATIENCE = 8.0  # half of it is how long a driver may be held up on a busy machine
FINAL = ("ended", "failed", "lost")


@pytest.fixture(scope="module")
def cluster(free_port: Callable[[], int]) -> Iterator[SmallRay]:
    with open_ray(free_port) as there:
        yield there
    _until(lambda: not _commands("sleep 4321"), 15)  # what the cluster ran ends with it


class Here:
    """An engine of the cluster with a home of its own, and what it has told."""

    def __init__(self, cluster: SmallRay, place: Path) -> None:
        self.cluster, self.place = cluster, place
        self.seen = list[EngineEvent]()
        self.again()

    def again(self) -> None:
        """As a restarted Trimtab."""
        self.engine = RayEngine(self.cluster.gate.address, self.place, patience=PATIENCE)

    def launch(self, key: str, script: str, *parts: tuple[str, int], **more: Any) -> str:
        return self.engine.launch(launch(key, script, *parts, **more))

    def events(self, run_id: str, until: str) -> list[EngineEvent]:
        """What is told of a run up to an event."""

        def told() -> list[EngineEvent]:
            self.seen.extend(self.engine.watch())
            return [event for event in self.seen if event.run_id == run_id]

        _until(lambda: {until, *FINAL} & {event.what for event in told()}, 90)
        found = told()
        assert until in [event.what for event in found], (found, self.log(run_id))
        return found

    def log(self, run_id: str) -> str:
        return self.engine.log(run_id).read_text()


def launch(key: str, script: str, *parts: tuple[str, int], **more: Any) -> Launch:
    return Launch(key, Workload(key, command=("sh", "-c", script)), parts, cpus=0.1, memory=1e6, **more)


COUNT_TO_FORTY = """
n=$(cat $STATE 2>/dev/null || echo 0)
echo from $n
while [ $n -lt 40 ]; do n=$((n+1)); echo $n > $STATE.new; mv $STATE.new $STATE; sleep $PAUSE; done
echo done $n
"""
STUBBORN = """
trap 'echo heard $RANK' USR1; trap '' TERM
sh -c 'trap "" TERM; exec sleep 4321' &
echo ready; while true; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def here(cluster: SmallRay, tmp_path_factory: pytest.TempPathFactory) -> Here:
    return Here(cluster, tmp_path_factory.mktemp("ray"))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state") / "n"


@pytest.fixture(scope="module")
def runs(here: Here, state: Path) -> dict[str, str]:
    """Started at once: what takes time in Ray is the beginning."""
    show = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LC_NODE $CUDA_VISIBLE_DEVICES $WORD $MASTER_ADDR:$MASTER_PORT"
    fail = "if [ $RANK = 1 ]; then sleep 1; exit 3; fi; sleep 300"
    saved = {"STATE": str(state), "PAUSE": "4"}
    return {
        "gang": here.launch("gang", f"{show}; printf tail", ("small", 1), ("big", 2), gpus=1.0,
                            environment={"WORD": "it's"}),
        "failing": here.launch("failing", fail, ("big", 1), ("small", 1)),
        "stubborn": here.launch("stubborn", STUBBORN, ("big", 1), ("small", 1)),
        "saving": here.launch("saving-1", COUNT_TO_FORTY, ("other", 1), environment=saved),
    }  # fmt: skip


def test_nodes_have_the_kind_of_accelerator_their_label_says(here: Here) -> None:
    nodes = [Node(name, 8, GIB, kind, gpus, "here") for name, (kind, gpus) in sorted(NODES.items())]
    assert list(here.engine.nodes()) == nodes


def test_a_gang_runs_where_it_should_and_knows_its_ranks(here: Here, runs: dict[str, str]) -> None:
    events = here.events(runs["gang"], "ended")
    assert [event.what for event in events] == ["started", "ended"]
    words = sorted(line.split() for line in here.log(runs["gang"]).replace("tail", "").splitlines())
    assert [each[:6] for each in words] == [
        ["0", "3", "0", "small", words[0][4], "it's"],
        ["1", "3", "0", "big", words[1][4], "it's"],
        ["2", "3", "1", "big", words[1][4], "it's"],
    ]
    assert len(words[0][4].split(",")) == 1
    assert len(set(words[1][4].split(","))) == 2, "both workers of a node see both devices"
    assert len({each[6] for each in words}) == 1
    assert here.log(runs["gang"]).count("tail") == 3, "what has no newline is not lost"


def test_one_worker_that_fails_ends_the_others(here: Here, runs: dict[str, str]) -> None:
    events = here.events(runs["failing"], "failed")
    assert events[-1].detail == "status 3 of worker 1"
    assert runs["failing"] not in here.engine.running()
    assert not _commands("sleep 300")


def test_a_cluster_that_is_away_has_lost_nothing(here: Here, runs: dict[str, str]) -> None:
    here.events(runs["stubborn"], "started")
    _until(lambda: "ready" in here.log(runs["stubborn"]), 30)
    here.cluster.gate.open = False
    try:
        here.again()
        for question in (lambda: list(here.engine.watch()), here.engine.running, here.engine.nodes):
            with pytest.raises(TrimtabError, match=here.cluster.gate.address):
                question()
        assert "ready" in here.log(runs["stubborn"]), "what was fetched before is still here"
    finally:
        here.cluster.gate.open = True
    assert here.engine.running()[runs["stubborn"]] == "stubborn"
    assert here.launch("stubborn", STUBBORN, ("big", 1), ("small", 1)) == runs["stubborn"]


def test_a_signal_reaches_every_worker_and_who_ignores_the_end_is_killed(
    here: Here, runs: dict[str, str]
) -> None:
    run_id = runs["stubborn"]
    here.events(run_id, "started")
    here.engine.signal(run_id, "USR1")
    _until(lambda: here.log(run_id).count("heard") == 2, 30)
    begin = time.monotonic()
    here.engine.stop(run_id, grace=1.0)
    assert time.monotonic() - begin > 1
    assert not _commands("sleep 4321"), "nor what it had started is left"
    assert here.events(run_id, "ended")[-1].detail == "stopped"
    here.engine.stop(run_id)
    with pytest.raises(NotFoundError, match=f"{run_id}.*USR1"):
        here.engine.signal(run_id, "USR1")


@dataclass(frozen=True)
class Twice:
    """A run launched by a Trimtab that was killed before it heard an answer, and by the next one."""

    id: str
    effects: Path
    launch: Callable[[], str]


@pytest.fixture(scope="module")
def twice(here: Here, runs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """Over as far as Ray knows, but not told yet."""
    effects = tmp_path_factory.mktemp("effects") / "lines"
    script = f"echo once >> {effects}"
    source = (
        "import sys; from pathlib import Path; from trimtab.core import Launch, Workload;"
        "from trimtab.engines.ray.engine import RayEngine;"
        "RayEngine(sys.argv[1], Path(sys.argv[2])).launch(Launch('killed', Workload('killed',"
        "command=('sh', '-c', sys.argv[3])), (('small', 1),), 0.1, 1e6))"
    )
    child = subprocess.Popen([sys.executable, "-c", source, here.cluster.gate.address, here.place, script])
    here.cluster.gate.on_submitted = child.kill
    try:
        assert child.wait(60) == -signal.SIGKILL
    finally:
        here.cluster.gate.on_submitted = None
    here.again()
    run_id = here.launch("killed", script, ("small", 1))
    there = RayCluster(here.cluster.gate.address)
    _until(lambda: all(job.over for job in there.jobs().values() if run_id in job.id), 60)
    return Twice(run_id, effects, lambda: here.launch("killed", script, ("small", 1)))


def test_killed_after_the_cluster_took_a_job_it_is_the_same_run(here: Here, twice: Twice) -> None:
    assert twice.effects.read_text() == "once\n"
    assert sum(twice.id in job for job in RayCluster(here.cluster.gate.address).jobs()) == 1


def test_a_run_the_cluster_forgot_is_lost_but_not_at_once(here: Here, twice: Twice) -> None:
    RayCluster(here.cluster.gate.address).forget(f"trimtab-{twice.id}")
    begin = time.monotonic()
    here.events(twice.id, "lost")
    assert time.monotonic() - begin >= PATIENCE
    assert twice.launch() == twice.id, "the same key never starts twice"
    assert twice.effects.read_text() == "once\n"


def test_an_impossible_launch_is_refused(here: Here) -> None:
    for refused, named in (
        (launch("a", "true", ("small", 3), gpus=1.0), "3 workers.* small"),
        (launch("a", "true", ("big", 1), gpus=1.5), r"1\.5 accelerators"),
    ):
        with pytest.raises(BadInputError, match=named):
            here.engine.launch(refused)


def test_a_run_whose_node_dies_is_lost_and_goes_on_from_its_checkpoint_elsewhere(
    here: Here, runs: dict[str, str], state: Path
) -> None:
    here.events(runs["saving"], "started")
    _until(lambda: state.exists() and int(state.read_text()) >= 2, 30)
    here.cluster.kill("other")
    events = here.events(runs["saving"], "lost")
    assert "worker 0" in events[-1].detail
    reached = int(state.read_text())
    assert 2 <= reached < 40
    with pytest.raises(BadInputError, match=runs["saving"]):
        here.engine.resize(runs["saving"], 1.0, None)
    saved = {"STATE": str(state), "PAUSE": "0.01"}
    again = here.launch("saving-2", COUNT_TO_FORTY, ("small", 1), environment=saved)
    here.events(again, "ended")
    assert here.log(again) == f"from {reached}\ndone 40\n"


@pytest.mark.parametrize("address", ["", "head", ":8265", "head:port", "http://head:8265"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(f"ray://{address}")):
        RayEngine(address)


def test_something_else_that_answers_is_not_taken_for_ray(tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(TrimtabError, match=f"127.0.0.1:{other.server_port}"):
            RayEngine(f"127.0.0.1:{other.server_port}", tmp_path).nodes()
        other.shutdown()


def test_notes_are_taken_out_and_nothing_else() -> None:
    text = 'Ray says\n\nword {"what": "driver"}\na\nb\nword {"what": "started"}\n\nwords are mine\n'
    assert split_notes(text, "word") == (
        "a\nb\nwords are mine\n",
        [{"what": "driver"}, {"what": "started"}],
    )
    assert split_notes("only Ray\n", "word") == ("only Ray\n", [])


def _commands(text: str) -> list[int]:
    """Processes whose command line is that."""
    found = []
    for process in processes():
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            if line == text:
                found.append(process.pid)
    return found


def _until(holds: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
