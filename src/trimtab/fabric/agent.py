"""Agent of one host: restarts FRR daemons, keeps traffic on working paths, publishes its status.

When the agent ends or dies, the network stays as it is: FRR goes on by itself, only slower. A later agent
finds the daemons running and the routes as they are, and takes over.
"""

import contextlib
import gc
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trimtab.core import Clock, NotFoundError, RealClock, TrimtabError
from trimtab.fabric.failover.keeper import Failover, FailoverRecord, PathKeeper, UplinkNow
from trimtab.fabric.failover.routes import wanted_hops
from trimtab.fabric.frr.configuration import host_files
from trimtab.fabric.frr.daemons import Daemons
from trimtab.fabric.journal import RUN
from trimtab.fabric.reconcile.reconciler import reconciler_of
from trimtab.fabric.topology import Host
from trimtab.kernel import file_lock, is_locked, write_whole

_LEAST_DELAY, _MOST_DELAY = 1.0, 30.0  # s before a daemon that dies again and again is started again

log = logging.getLogger(__name__)


class Running(Protocol):
    """FRR's daemons, as far as who keeps them alive deals with them."""

    folder: Path

    def missing(self) -> tuple[str, ...]: ...
    def restart(self, name: str) -> None: ...
    def wait_for_death(self, seconds: float, wake: int) -> bool: ...


class Revival:
    """Of one host's daemons."""

    def __init__(self, daemons: Running, clock: Clock) -> None:
        self._daemons, self._clock = daemons, clock
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._dead: frozenset[str] = frozenset()  # of those that are to be started later

    def revive(self) -> None:
        """Start those that are missing and due."""
        now = self._clock.monotonic()
        missing = self._daemons.missing()
        self._dead = frozenset(name for name in missing if now < self._due.get(name, now))
        for name in missing:
            if name not in self._dead:
                self._delays[name] = min(2 * self._delays.get(name, _LEAST_DELAY / 2), _MOST_DELAY)
                self._due[name] = now + self._delays[name]
                self._dead |= {name}  # unless it starts
                log.warning("FRR's %s has died and is started again", name)
                self._daemons.restart(name)
                self._dead -= {name}
        for name in [
            name for name in self._due if name not in missing and now > self._due[name] + _MOST_DELAY
        ]:
            del self._due[name], self._delays[name]

    def wait(self, seconds: float, wake: int) -> bool:
        """Whether there is something to revive within that time; ends early when `wake` is readable."""
        pause = min((self._due[name] for name in self._dead), default=float("inf")) - self._clock.monotonic()
        died = self._daemons.wait_for_death(max(0.0, min(seconds, pause)), wake)
        return died or pause <= seconds


STATUS = "status.json"


@dataclass(frozen=True, slots=True)
class Status:
    """A host at `time` (seconds since the epoch), as its agent sees it.

    `paths` are the devices that lead to each destination; `gone` are destinations that had a path once, and
    since when they have none. `problems` are sentences.
    """

    host: str
    time: float
    uplinks: tuple[UplinkNow, ...]
    paths: dict[str, tuple[str, ...]]
    gone: dict[str, float]
    failovers: tuple[Failover, ...]
    problems: tuple[str, ...] = ()
    repairs: int = 0  # routes that FRR had lost without noticing, since the agent began
    late: int = 0  # ticks for probes that came late, since the agent began: the machine was busy or away
    failover_count: int = 0  # since the agent began
    failover_seconds: float = 0.0  # those, from hearing to new routes


@dataclass(frozen=True, slots=True)
class Sessions:
    """What FRR says: BFD sessions and BGP peers and their states, other hosts of each tenant's network."""

    bfd: dict[str, str] = field(default_factory=dict)  # by peer
    bgp: dict[str, str] = field(default_factory=dict)
    evpn: dict[str, str] = field(default_factory=dict)
    tunnels: dict[int, tuple[str, ...]] = field(default_factory=dict)  # loopbacks of others, by vni


def write_status(status: Status, folder: Path) -> None:
    """Keep it where `read_status` looks."""
    write_whole(folder / STATUS, json.dumps(asdict(status)))


def read_status(host: str, folder: Path | None = None) -> Status:
    """The latest that a host's agent wrote."""
    place = (folder or RUN / host) / STATUS
    try:
        return _status_of(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFoundError(
            f"no agent has run for a host {host} here; start one with trimtab fabric up HOST.yaml"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NotFoundError(f"{place} is not what an agent writes; start trimtab fabric up anew") from None


def fabrics_here() -> tuple[str, ...]:
    """Names of hosts that an agent has run for on this machine."""
    return tuple(sorted(place.parent.name for place in RUN.glob(f"*/{STATUS}")))


def ask_sessions(vtysh: Callable[[str], str]) -> Sessions:
    """What FRR says now; a sentence where it does not answer."""
    try:
        bfd = json.loads(vtysh("show bfd peers json") or "[]")
        bgp = json.loads(vtysh("show bgp summary json") or "{}")
        vnis = json.loads(vtysh("show evpn vni json") or "{}")
        return Sessions(
            {str(each["peer"]): str(each["status"]) for each in bfd},
            _peers(bgp.get("ipv4Unicast", {})),
            _peers(bgp.get("l2VpnEvpn", {})),
            {
                int(each["vni"]): tuple(sorted(each.get("remoteVteps") or ()))
                for each in vnis.values()
                if isinstance(each, dict) and each["vni"]  # a sender for all of them counts as 0
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"what FRR says about its sessions cannot be read: {error}") from None


def _peers(told: Mapping[str, Any]) -> dict[str, str]:
    return {peer: str(each["state"]) for peer, each in (told.get("peers") or {}).items()}


def _status_of(told: Any) -> Status:
    return Status(
        str(told["host"]),
        float(told["time"]),
        tuple(UplinkNow(**each) for each in told["uplinks"]),
        {prefix: tuple(devices) for prefix, devices in told["paths"].items()},
        {prefix: float(since) for prefix, since in told["gone"].items()},
        tuple(Failover(**each) for each in told["failovers"]),
        tuple(map(str, told["problems"])),
        int(told["repairs"]),
        int(told["late"]),
        int(told["failover_count"]),
        float(told["failover_seconds"]),
    )


def plain_status(status: Status, sessions: Sessions) -> dict[str, Any]:
    """Both as plain values, for JSON."""
    return {**asdict(status), "sessions": asdict(sessions)}


def exposition(status: Status) -> str:
    """The agent's figures in Prometheus' text format."""
    name = f'host="{_escaped(status.host)}"'
    lines = list[str]()

    def family(metric: str, kind: str, says: str, rows: Mapping[str, float]) -> None:
        lines.extend((f"# HELP trimtab_fabric_{metric} {says}", f"# TYPE trimtab_fabric_{metric} {kind}"))
        lines.extend(
            f"trimtab_fabric_{metric}{{{name}{at}}} {float(value):.15g}" for at, value in rows.items()
        )

    uplinks = {f',uplink="{_escaped(each.device)}"': each for each in status.uplinks}
    family("uplink_up", "gauge", "whether it is used", {k: each.state == "up" for k, each in uplinks.items()})
    family(
        "uplink_dead", "gauge", "whether it is dead", {k: each.state == "dead" for k, each in uplinks.items()}
    )
    looped = {k: each.echo for k, each in uplinks.items() if each.echo is not None}
    family("uplink_echo", "gauge", "whether its switch sends probes back", looped)
    family("late_ticks_total", "counter", "probes that left late: busy, or away", {"": status.late})
    family("destinations", "gauge", "hosts and switches with a path", {"": len(status.paths)})
    family("destinations_gone", "gauge", "those that had a path once", {"": len(status.gone)})
    family("repairs_total", "counter", "routes that FRR had lost without noticing", {"": status.repairs})
    family("failovers_total", "counter", "uplinks that failed", {"": status.failover_count})
    family("failover_seconds_total", "counter", "from hearing to new routes", {"": status.failover_seconds})
    worst = max((failover.seconds for failover in status.failovers), default=0.0)
    family("failovers_kept", "gauge", "failovers on file", {"": len(status.failovers)})
    family("failover_worst_seconds", "gauge", "from hearing to new routes, of those", {"": worst})
    family("problems", "gauge", "sentences in the status", {"": len(status.problems)})
    family("status_time_seconds", "gauge", "when the agent wrote this, since 1970", {"": status.time})
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


FAILOVERS, _LOCK = "failovers.jsonl", "agent.lock"
_SWITCH = 0.0005  # s for which one thread may keep another waiting; Python's own is ten times as long


class Worker(Protocol):
    """What runs beside, in a thread of its own, until it is stopped."""

    problem: str | None

    def run(self) -> None: ...
    def stop(self) -> None: ...


class Agent:
    """Of one host, whose plan is applied and whose daemons are started. `tell` hears of each failover."""

    def __init__(
        self,
        host: Host,
        daemons: Running,
        namespace: str | None = None,
        workers: Sequence[Worker] = (),
        tell: Callable[[Failover], None] = lambda failover: None,
        folder: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._host, self._daemons, self._namespace = host, daemons, namespace
        self._workers = workers
        self._folder = folder or RUN / host.name
        self._clock = clock or RealClock()
        self._record = FailoverRecord(self._folder / FAILOVERS, tell)
        self._keeper: PathKeeper | None = None
        self._ended = threading.Event()
        self._revival = Revival(daemons, self._clock)
        self._wake, self._woken = socket.socketpair()
        self._repairs = 0
        self._problems: dict[str, str] = {}

    def run(self) -> None:
        """Work until `stop`, and leave everything as it is."""
        refusal = f"an agent already runs for {self._host.name}"
        with file_lock(self._folder / _LOCK, refusal), self._record, _prompt(), self._threads() as threads:
            while not self._ended.is_set():
                began = self._clock.monotonic()
                self._check(threads)
                self._step()
                spent = self._clock.monotonic() - began
                self._rest(max(self._host.timers.settle, 10 * spent) - spent)
            with self._noting("status"):  # from which a later agent goes on
                write_status(self.status(), self._folder)

    def stop(self) -> None:
        """End `run` soon."""
        self._ended.set()
        with contextlib.suppress(OSError):  # it has ended
            self._wake.send(b"\0")

    @property
    def at_work(self) -> bool:
        """Whether it keeps paths by now."""
        return self._keeper is not None

    def status(self) -> Status:
        """As things are."""
        assert self._keeper is not None, "an agent that does not run has no status"
        paths = self._keeper.look()
        problems = [*self._problems.values(), *(each.problem for each in self._workers if each.problem)]
        if not paths.bfd:
            problems.append(
                "bfdd cannot be heard: what probes do not show is noticed only by BGP, in seconds"
            )
        return Status(
            self._host.name,
            self._clock.now(),
            paths.uplinks,
            paths.devices,
            paths.gone,
            self._record.latest,
            tuple(problems),
            self._repairs,
            paths.late,
            self._record.count,
            self._record.seconds,
        )

    def _check(self, threads: Sequence[threading.Thread]) -> None:
        """Without the keeper of paths an agent is of no use; without a reconciler it is."""
        keeper, *workers = threads
        if not keeper.is_alive():
            raise TrimtabError("the keeper of paths has failed; the network stays as it is")
        with self._noting("workers"):
            if not all(thread.is_alive() for thread in workers):
                raise TrimtabError(
                    "a reconciler has failed, so a tenant's table may grow old; start the agent anew"
                )

    def _step(self) -> None:
        """What is done every settle period."""
        assert self._keeper is not None
        with self._noting("daemons"):
            self._revival.revive()
        with self._noting("routes"):
            mark = self._keeper.mark()
            self._repairs += self._keeper.believe(wanted_hops(self._daemons.folder), mark)
        with self._noting("status"):
            write_status(self.status(), self._folder)

    def _rest(self, seconds: float) -> None:
        """Until the next step; a daemon that dies meanwhile is started again at once."""
        end = self._clock.monotonic() + seconds
        while not self._ended.is_set() and (left := end - self._clock.monotonic()) > 0.0:
            if self._revival.wait(left, self._woken.fileno()):
                with self._noting("daemons"):
                    self._revival.revive()

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """A problem is said in the status, and in the log when it is new."""
        try:
            yield
            self._problems.pop(what, None)
        except TrimtabError as error:
            if self._problems.get(what) != str(error):
                log.warning("%s", error)
            self._problems[what] = str(error)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[list[threading.Thread]]:
        """The keeper and the workers, each in a thread."""
        bfd = self._daemons.folder / "bfdd.sock"
        before = self._before()
        self._keeper = PathKeeper(
            self._host,
            bfd,
            self._namespace,
            self._record,
            before.gone if before else None,
            self._clock,
            before=before.uplinks if before else (),
        )
        parts: list[PathKeeper | Worker] = [self._keeper, *self._workers]
        threads = [threading.Thread(target=part.run, daemon=True) for part in parts]
        try:
            for thread in threads:
                thread.start()
            self._keeper.ready.wait(self._host.timers.settle)
            yield threads
        finally:
            for part in parts:
                part.stop()
            for thread in threads:
                thread.join()
            self._wake.close()
            self._woken.close()

    def _before(self) -> Status | None:
        """How an earlier agent left things: destinations that were gone, uplinks that had failed."""
        try:
            return read_status(self._host.name, self._folder)
        except NotFoundError:
            return None


@contextlib.contextmanager
def _prompt() -> Iterator[None]:
    """Let no thread of this process, nor its collection of garbage, keep the keeper of paths waiting."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def agent_runs(name: str, folder: Path | None = None) -> bool:
    """Whether an agent runs for that host."""
    return is_locked((folder or RUN / name) / _LOCK)


def forget_agent(name: str, folder: Path | None = None) -> None:
    """Remove what agents of that host have written; not while one runs."""
    place = folder or RUN / name
    if agent_runs(name, folder):
        raise TrimtabError(f"an agent runs for {name}; end it first, with Ctrl-C or SIGTERM")
    for file in (STATUS, FAILOVERS, Path(FAILOVERS).with_suffix(".old").name, _LOCK):
        (place / file).unlink(missing_ok=True)


@contextlib.contextmanager
def agent_of(host: Host, tell: Callable[[Failover], None] = lambda failover: None) -> Iterator[Agent]:
    """An agent for a host whose plan is applied, in this network namespace; FRR runs, and goes on."""
    daemons = Daemons(RUN / host.name, host_files(host))
    daemons.start()
    with contextlib.ExitStack() as stack:
        workers = []
        for tenant in host.tenants:
            workers.append(reconciler_of(host, tenant))
            stack.callback(workers[-1].close)
        yield Agent(host, daemons, workers=workers, tell=tell)


def end_routing(name: str) -> None:
    """End FRR's daemons of that host and remove what its agents wrote; not while one runs."""
    forget_agent(name)
    Daemons(RUN / name, {}).stop()


def sessions_of(name: str) -> Sessions:
    """What FRR says about that host's sessions now."""
    return ask_sessions(Daemons(RUN / name, {}).vtysh)
