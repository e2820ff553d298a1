"""One run on one store: faults by their plan, the clients' work, and the verdict."""

import contextlib
import heapq
import itertools
import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from trimtab.core import StorageError, TrimtabError, home
from trimtab.store import Store, open_store
from trimtab_bench.chaos import plan as faults
from trimtab_bench.chaos.clients import ACKNOWLEDGED, Clients
from trimtab_bench.chaos.containers import ContainerWatch, chaos_containers, pools_file, sweep_containers
from trimtab_bench.chaos.plan import InjectedFault, fault_plan
from trimtab_bench.chaos.system import System, unmount
from trimtab_bench.chaos.verdict import StoredJob, check_jobs, failures, find_tracebacks
from trimtab_bench.chaos.worker import run_of
from trimtab_bench.processes import Child, child

STREAMS = 100
JOBS_PER_SECOND = 0.7

_NAME = "trimtab-chaos-"
_TURN = 0.05  # s between two looks at what is due
_LOOK = 0.25  # s between two looks at containers
_AGAIN = 0.5  # s until a fault that found no process is tried again
_TRIES = 20
_ANOTHER = 97  # times this, without the whole part, a choice is another one
_READY = 90.0  # s until a healed system must answer every request
_STALLED = 120.0  # s without the end of any job, after which those left count as lost
_PAGE = 1000


@dataclass(slots=True)
class FaultInjector:
    """Injects faults and ends them when their time is over."""

    system: System
    watch: ContainerWatch
    log: Path
    began: float
    counts: Counter[str] = field(default_factory=Counter)
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def schedule(self, fault: InjectedFault, tries: int = _TRIES) -> None:
        self._later(self.began + fault.at + _AGAIN * (_TRIES - tries), lambda: self._attempt(fault, tries))

    def turn(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def heal(self) -> None:
        """End all faults and inject no more."""
        self._due.clear()
        self.system.resume()
        self.system.disk.release()
        self.watch.agent_changed()

    def _later(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), act))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._later(time.monotonic() + seconds, act)

    def _attempt(self, fault: InjectedFault, tries: int) -> None:
        pids = self._inject(fault)
        if pids is None:
            if tries > 1:
                self.schedule(fault, tries - 1)
            return
        self.counts[" ".join(filter(None, (fault.kind, fault.target)))] += 1
        line = {"second": round(time.monotonic() - self.began, 3), "time": time.time(), "pids": pids}
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**asdict(fault), **line}) + "\n")

    def _inject(self, fault: InjectedFault) -> list[int] | None:
        """Inject a fault; returns the processes it hit, or None where there is none to hit."""
        system = self.system
        if fault.kind == faults.CLOCK:
            system.clock.shift(fault.offset)
            return []
        if fault.kind == faults.DISK:
            system.disk.fill()
            self._after(fault.seconds, system.disk.release)
            return []
        if fault.kind == faults.DATABASE:
            number = signal.SIGQUIT if fault.target == faults.IMMEDIATE else signal.SIGKILL
            system.restart_database(number, fault.seconds)
            return []
        if fault.target in (faults.AGENT, faults.SWITCH, faults.AGENTS):
            return self._hit_agents(fault)
        if fault.kind == faults.STOP:
            return self._stop(_chosen(system.by_role().get(fault.target, []), fault.choice), fault)
        if fault.target in (faults.SERVER, faults.WRITER, faults.SCHEDULER, faults.STARTER):
            return self._kill(_chosen(system.by_role().get(fault.target, []), fault.choice))
        return self._kill_runs(fault)

    def _kill(self, pids: list[int]) -> list[int] | None:
        for pid in pids:
            self.system.send(pid, signal.SIGKILL)
        return pids or None

    def _stop(self, pids: list[int], fault: InjectedFault) -> list[int] | None:
        for pid in pids:
            self.system.stop(pid)
            self._after(fault.seconds, lambda pid=pid: self.system.resume(pid))  # type: ignore[misc]
        return pids or None

    def _hit_agents(self, fault: InjectedFault) -> list[int] | None:
        """Kill or stop processes of the agent; one that was stopped before goes on first."""
        roles = self.system.by_role()
        agents, switches = roles.get(faults.AGENT, []), roles.get(faults.SWITCH, [])
        if not agents or not switches:
            return None
        for pid in self.system.stopped.intersection((*agents, *switches)):
            self.system.resume(pid)
        self.watch.agent_changed()
        if fault.target == faults.AGENTS:
            victims = _subset([*agents, *switches], fault.choice)
        else:
            victims = _chosen(roles[fault.target], fault.choice)
        if fault.kind == faults.STOP:
            self._after(fault.seconds, self.watch.agent_changed)
            return self._stop(victims, fault)
        self.system.agent.start_at = time.monotonic() + fault.seconds
        return self._kill(victims)

    def _kill_runs(self, fault: InjectedFault) -> list[int] | None:
        """Kill processes of runs that have not done their work: of one run, or of all with the server."""
        system, roles = self.system, self.system.by_role()
        workers, supervisors = roles.get(faults.WORKER, []), roles.get(faults.SUPERVISOR, [])
        if fault.target != faults.MACHINE:
            workers = _chosen(workers, fault.choice)
            runs = set(map(run_of, workers))
            supervisors = [pid for pid in supervisors if system.run_of_supervisor(pid) in runs]
        with system.unfinished(workers) as victims:
            done = system.records.done()
            supervisors = [pid for pid in supervisors if system.run_of_supervisor(pid) not in done]
            if fault.target == faults.WORKER:
                return self._kill(victims)
            if fault.target == faults.SUPERVISOR:
                return self._kill(_subset(supervisors, fault.choice * _ANOTHER % 1.0))
            if fault.target == faults.RUN:
                return self._kill([*supervisors, *victims])
            servers = [
                pid
                for role in (faults.SERVER, faults.WRITER, faults.SCHEDULER, faults.STARTER)
                for pid in roles.get(role, [])
            ]
            return self._kill([*servers, *supervisors, *victims])


def _chosen(pids: list[int], choice: float) -> list[int]:
    return [pids[int(choice * len(pids))]] if pids else []


def _subset(pids: list[int], choice: float) -> list[int]:
    """One of the non-empty subsets, if there is any."""
    mask = 1 + int(choice * (2 ** len(pids) - 1))
    return [pid for number, pid in enumerate(pids) if mask >> number & 1]


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """Figures of a run; `failure` says which checks failed and where the evidence is, "" if none did."""

    figures: dict[str, Any]
    failure: str


Announce = Callable[[float, str], None]
"""Called with the seconds that have passed, and the counts so far in words."""


def chaos_trial(store: str, seconds: float, seed: int, announce: Announce) -> ChaosResult:
    """Run for so many seconds, or until Ctrl-C, and check; the folder stays if a check fails."""
    place = home() / "bench" / "chaos"
    _sweep(place)
    name = f"{_NAME}{os.getpid()}-{store}"
    folder = place / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Not in the home: the database's own user must reach its disk.
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    scratch.chmod(0o755)
    kept = place / f"failed-{store}-seed-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(unmount, scratch / "disk")
            figures, evidence = _run(stack, folder, scratch, store, seconds, seed, announce)
    except TrimtabError as error:
        folder.rename(kept)
        raise TrimtabError(f"seed {seed} failed on {store}: {error}; logs and faults are in {kept}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    wrong = failures(figures)
    if not wrong:
        shutil.rmtree(folder)
        return ChaosResult(figures, "")
    folder.rename(kept)
    (kept / "verdict.json").write_text(json.dumps({"figures": figures, "evidence": evidence}, indent=1))
    again = f"trimtab bench chaos --store {store} --minutes {seconds / 60:g} --seed {seed}"
    return ChaosResult(
        figures,
        f"seed {seed} failed on {store}: {', '.join(wrong)}; logs, faults and verdict.json are in {kept}; "
        f"{again} injects the same faults in the same order",
    )


def _sweep(place: Path) -> None:
    """Remove what runs that were killed have left."""
    for left in (*place.glob(f"{_NAME}*"), *Path(tempfile.gettempdir()).glob(f"{_NAME}*")):
        pid = int(left.name.removeprefix(_NAME).split("-")[0])
        if not psutil.pid_exists(pid):
            unmount(left / "disk")
            sweep_containers(f"{_NAME}{pid}")
            shutil.rmtree(left, ignore_errors=True)


def _run(
    stack: contextlib.ExitStack,
    folder: Path,
    scratch: Path,
    store: str,
    seconds: float,
    seed: int,
    announce: Announce,
) -> tuple[dict[str, Any], dict[str, Any]]:
    group = f"{_NAME}{os.getpid()}"
    (folder / "pools.yaml").write_text(pools_file(group))
    plan = fault_plan(seed, store, seconds)
    (folder / "schedule.json").write_text(json.dumps([asdict(fault) for fault in plan], indent=1))
    watch = stack.enter_context(chaos_containers(group, seed))
    system = System(folder, scratch, store)
    stack.callback(system.close)
    keeper = _Keeper(system, watch)
    keeper.until(lambda: _answers(system), _READY, "the server does not answer")
    log = stack.enter_context((folder / "clients.log").open("ab"))
    clients = stack.enter_context(child("-m", "trimtab_bench.chaos.clients", stderr=log))
    clients.send(asdict(Clients(system.port, str(folder), JOBS_PER_SECOND, STREAMS, seed)))
    injector = FaultInjector(system, watch, folder / "faults.jsonl", time.monotonic())
    for fault in plan:
        injector.schedule(fault)
    with contextlib.suppress(KeyboardInterrupt):  # the verdict so far
        while (passed := time.monotonic() - injector.began) < seconds:
            injector.turn()
            keeper.turn()
            if clients.process.poll() is not None:
                raise TrimtabError(f"the clients ended with status {clients.process.returncode}")
            announce(passed, f"{sum(injector.counts.values())} faults, {_acknowledged_count(folder)} jobs")
            time.sleep(_TURN)
    injector.heal()
    announce(seconds, "checking")
    figures, evidence = _settled(keeper, clients, system, folder)
    system.close()
    watch.last_look()
    tracebacks, texts = find_tracebacks(
        [*sorted(folder.glob("*.log")), *sorted(folder.glob("home/engines/local/*/output.log"))]
    )
    figures |= {
        "orphans": len(watch.orphans),
        "tracebacks": tracebacks,
        "faults": sum(injector.counts.values()),
        "by_kind": dict(sorted(injector.counts.items())),
        "container_deaths": watch.deaths,
        "managed": watch.managed,
        "server_starts": system.server.starts,
        "agent_starts": system.agent.starts,
        "statuses": {str(status): count for status, count in system.server.statuses.items()},
        "minutes": (time.monotonic() - injector.began) / 60.0,
        "seed": seed,
    }
    return figures, evidence | {"orphans": watch.orphans, "tracebacks": texts}


@dataclass(slots=True)
class _Keeper:
    """Keeps services running and looks at containers, also while something else is waited for."""

    system: System
    watch: ContainerWatch
    _look_at: float = 0.0

    def turn(self) -> None:
        self.system.keep_running(self.watch.agent_changed)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK
            self.watch.look(self.system.agent_works)

    def until(self, condition: Callable[[], bool], seconds: float, problem: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TrimtabError(f"{problem} after {seconds:.0f} s")
            self.turn()
            time.sleep(_TURN)

    def answer(self, clients: Child, message: Any, seconds: float, problem: str) -> Any:
        """The clients' answer to a message."""
        clients.send(message)
        with ThreadPoolExecutor(1) as pool:
            answer: Future[Any] = pool.submit(clients.receive)
            try:
                self.until(answer.done, seconds, problem)
            except BaseException:
                clients.process.kill()
                raise
            return answer.result()


def _answers(system: System) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{system.port}/v1/ready", timeout=2):  # nosec B310 # loopback
            return True
    except (urllib.error.URLError, OSError):
        return False


def _acknowledged(folder: Path) -> dict[str, str]:
    """Names of acknowledged jobs by id."""
    lines = (folder / ACKNOWLEDGED).read_text().splitlines() if (folder / ACKNOWLEDGED).exists() else []
    return {entry["id"]: entry["name"] for entry in map(json.loads, lines)}


def _acknowledged_count(folder: Path) -> int:
    file = folder / ACKNOWLEDGED
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _settled(
    keeper: _Keeper, clients: Child, system: System, folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait until all submissions are acknowledged and all jobs have ended; then compare."""
    keeper.until(lambda: _answers(system), _READY, "after the last fault the server does not answer")
    refused = keeper.answer(clients, "stop", _READY, "not every submission is acknowledged")["refused"]
    with open_store(system.url) as store:
        _wait_for_ends(keeper, store)
        jobs = tuple(_jobs(store))
        events = _event_ids(store)
    streams = keeper.answer(clients, events, 2 * _READY, "the streams' verdict did not come")
    figures, evidence = check_jobs(_acknowledged(folder), jobs, system.records.read())
    counts = {name: streams[name] for name in ("events_missed", "events_repeated")}
    figures |= {"refused": sum(refused.values()), "events": len(events), "streams": STREAMS, **counts}
    return figures, evidence | {"refused": refused, "events_missed": streams["missed_ids"]}


def _wait_for_ends(keeper: _Keeper, store: Store) -> None:
    """Wait until no job is active, or none has ended for a while."""
    left, changed = -1, time.monotonic()
    while left and time.monotonic() < changed + _STALLED:
        with contextlib.suppress(StorageError):
            now = len(store.jobs.active())
            if now != left:
                left, changed = now, time.monotonic()
        for _ in range(10):
            keeper.turn()
            time.sleep(_TURN)


def _jobs(store: Store) -> Iterator[StoredJob]:
    after: str | None = None
    while True:
        page = store.jobs.page(_PAGE, after=after)
        for job in page.items:
            yield StoredJob(job.id, job.name, job.state, job.run.reason)
        if page.next is None:
            return
        after = page.next


def _event_ids(store: Store) -> list[int]:
    ids = list[int]()
    while events := store.events.since(ids[-1] if ids else 0, _PAGE):
        ids += [event.id for event in events]
    return ids
