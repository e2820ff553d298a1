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
from typing import TYPE_CHECKING, Any

from trimtab.core import BadInputError, Clock, NotFoundError, RealClock, TrimtabError, one_line
from trimtab.fabric.failover.keeper import Failover, FailoverRecord, PathKeeper, UplinkNow
from trimtab.fabric.failover.routes import daemon_hops
from trimtab.fabric.frr.configuration import host_files
from trimtab.fabric.frr.daemons import Daemons
from trimtab.fabric.journal import RUN
from trimtab.fabric.reconcile.reconciler import Reconciler, reconciler_of
from trimtab.fabric.topology import FabricHost
from trimtab.kernel import file_lock, is_locked, write_whole

if TYPE_CHECKING:
    from prometheus_client import Metric

STATUS, FAILOVERS, _LOCK = "status.json", "failovers.jsonl", "agent.lock"
_LEAST_DELAY, _MOST_DELAY = 1.0, 30.0  # s before a daemon that dies repeatedly is started again
_SWITCH_INTERVAL = 0.0005  # s for which one thread may keep another waiting; a tenth of Python's default

log = logging.getLogger(__name__)


class Revival:
    """Restarts one host's daemons, with a delay that doubles while one dies repeatedly."""

    def __init__(self, daemons: Daemons, clock: Clock) -> None:
        self._daemons, self._clock = daemons, clock
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._dead: frozenset[str] = frozenset()  # to be started later

    def revive(self) -> None:
        """Start daemons that are missing and due."""
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
        for name in list(self._due):
            if name not in missing and now > self._due[name] + _MOST_DELAY:
                del self._due[name], self._delays[name]

    def wait(self, seconds: float, wake: int) -> bool:
        """Whether there is something to revive within that time; ends early when `wake` is readable."""
        pause = min((self._due[name] for name in self._dead), default=float("inf")) - self._clock.monotonic()
        died = self._daemons.wait_for_death(max(0.0, min(seconds, pause)), wake)
        return died or pause <= seconds


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
    late: int = 0  # ticks for probes that came late, since the agent began: the machine was busy or suspended
    failover_count: int = 0  # since the agent began
    failover_seconds: float = 0.0  # from hearing to new routes, in total since the agent began


@dataclass(frozen=True, slots=True)
class Sessions:
    """FRR's BFD sessions and BGP peers with their states, and the other hosts of each tenant's network."""

    bfd: dict[str, str] = field(default_factory=dict)  # by peer
    bgp: dict[str, str] = field(default_factory=dict)
    evpn: dict[str, str] = field(default_factory=dict)
    tunnels: dict[int, tuple[str, ...]] = field(default_factory=dict)  # loopbacks of others, by vni


def write_status(status: Status, folder: Path) -> None:
    write_whole(folder / STATUS, json.dumps(asdict(status)))


def read_status(host: str, folder: Path | None = None) -> Status:
    """The latest status that a host's agent wrote."""
    path = (folder or RUN / host) / STATUS
    try:
        return parse_status(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFoundError(
            f"no agent has run for a host {host} here; start one with trimtab fabric up HOST.yaml"
        ) from None
    except (OSError, ValueError, TrimtabError):
        raise NotFoundError(f"{path} is not an agent's status; start trimtab fabric up again") from None


def parse_status(plain: Any) -> Status:
    """A status from the plain values of `plain_status`."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Status).validate_python(plain)
    except ValidationError as error:
        raise BadInputError(f"the status of a host cannot be read: {one_line(str(error)):.200}") from None


def fabrics_here() -> tuple[str, ...]:
    """Names of hosts that an agent has run for on this machine."""
    return tuple(sorted(path.parent.name for path in RUN.glob(f"*/{STATUS}")))


def ask_sessions(vtysh: Callable[[str], str]) -> Sessions:
    """Sessions as FRR reports them now; TrimtabError where it does not answer."""
    try:
        bfd = json.loads(vtysh("show bfd peers json") or "[]")
        bgp = json.loads(vtysh("show bgp summary json") or "{}")
        vnis = json.loads(vtysh("show evpn vni json") or "{}")
        return Sessions(
            {str(peer["peer"]): str(peer["status"]) for peer in bfd},
            _peers(bgp.get("ipv4Unicast", {})),
            _peers(bgp.get("l2VpnEvpn", {})),
            {
                int(network["vni"]): tuple(sorted(network.get("remoteVteps") or ()))
                for network in vnis.values()
                if isinstance(network, dict) and network["vni"]  # the host's sender has 0
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"FRR's report of its sessions cannot be read: {error}") from None


def _peers(family: Mapping[str, Any]) -> dict[str, str]:
    return {address: str(peer["state"]) for address, peer in (family.get("peers") or {}).items()}


def plain_status(status: Status, sessions: Sessions) -> dict[str, Any]:
    """Status and sessions as plain values, for JSON."""
    return {**asdict(status), "sessions": asdict(sessions)}


def exposition(status: Status) -> str:
    """The agent's figures in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class StatusFigures(Collector):
        def collect(self) -> "Iterator[Metric]":
            return _figures(status)

    registry = CollectorRegistry()
    registry.register(StatusFigures())
    return generate_latest(registry).decode()


def _figures(status: Status) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    gauge, counter = GaugeMetricFamily, CounterMetricFamily
    uplinks = {uplink.device: uplink for uplink in status.uplinks}
    for name, description, values in (
        ("uplink_up", "whether it is used", {d: uplink.state == "up" for d, uplink in uplinks.items()}),
        ("uplink_dead", "whether it is dead", {d: uplink.state == "dead" for d, uplink in uplinks.items()}),
        (
            "uplink_echo",
            "whether its switch sends probes back",
            {device: uplink.echo for device, uplink in uplinks.items() if uplink.echo is not None},
        ),
    ):
        family = gauge(f"trimtab_fabric_{name}", description, labels=("host", "uplink"))
        for device, value in values.items():
            family.add_metric((status.host, device), float(value))
        yield family
    worst = max((failover.seconds for failover in status.failovers), default=0.0)
    for kind, name, description, figure in (
        (counter, "late_ticks", "probes that left late: busy or suspended", status.late),
        (gauge, "destinations", "hosts and switches with a path", len(status.paths)),
        (gauge, "destinations_gone", "destinations that lost their last path", len(status.gone)),
        (counter, "repairs", "routes that FRR had lost without noticing", status.repairs),
        (counter, "failovers", "uplinks that failed", status.failover_count),
        (counter, "failover_seconds", "from hearing to new routes", status.failover_seconds),
        (gauge, "failovers_kept", "failovers on file", len(status.failovers)),
        (gauge, "failover_worst_seconds", "longest of the failovers on file", worst),
        (gauge, "problems", "sentences in the status", len(status.problems)),
        (gauge, "status_time_seconds", "when the agent wrote this, since 1970", status.time),
    ):
        single = kind(f"trimtab_fabric_{name}", description, labels=("host",))
        single.add_metric((status.host,), figure)
        yield single


class Agent:
    """Agent of a host with an applied plan and started daemons; `on_failover` gets each failover."""

    def __init__(
        self,
        host: FabricHost,
        daemons: Daemons,
        namespace: str | None = None,
        reconcilers: Sequence[Reconciler] = (),
        on_failover: Callable[[Failover], None] = lambda failover: None,
    ) -> None:
        self._host, self._daemons, self._namespace = host, daemons, namespace
        self._reconcilers = reconcilers
        self._folder = RUN / host.name
        self._clock = RealClock()
        self._record = FailoverRecord(self._folder / FAILOVERS, on_failover)
        self._keeper: PathKeeper | None = None
        self._ended = threading.Event()
        self._revival = Revival(daemons, self._clock)
        self._wake, self._woken = socket.socketpair()
        self._repairs = 0
        self._problems: dict[str, str] = {}

    def run(self) -> None:
        """Work until `stop`, and leave everything as it is."""
        refusal = f"an agent already runs for {self._host.name}"
        with (
            file_lock(self._folder / _LOCK, refusal),
            self._record,
            _low_latency(),
            self._threads() as (keeper, reconcilers),
        ):
            while not self._ended.is_set():
                began = self._clock.monotonic()
                if not keeper.is_alive():
                    raise TrimtabError("the keeper of paths has failed; the network stays as it is")
                with self._noting("workers"):
                    if not all(thread.is_alive() for thread in reconcilers):
                        raise TrimtabError(
                            "a reconciler has failed, so a tenant's table may be stale; restart the agent"
                        )
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
        assert self._keeper is not None, "an agent that does not run has no status"
        paths = self._keeper.look()
        problems = [*self._problems.values()]
        problems += [reconciler.problem for reconciler in self._reconcilers if reconciler.problem]
        if not paths.bfd:
            problems.append("bfdd does not answer: failures that probes miss are found by BGP, in seconds")
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

    def _step(self) -> None:
        """Done every settle period."""
        assert self._keeper is not None
        with self._noting("daemons"):
            self._revival.revive()
        with self._noting("routes"):
            mark = self._keeper.mark()
            self._repairs += self._keeper.believe(daemon_hops(self._daemons.folder), mark)
        with self._noting("status"):
            write_status(self.status(), self._folder)

    def _rest(self, seconds: float) -> None:
        """Wait for the next step; a daemon that dies meanwhile is started again at once."""
        end = self._clock.monotonic() + seconds
        while not self._ended.is_set() and (left := end - self._clock.monotonic()) > 0.0:
            if self._revival.wait(left, self._woken.fileno()):
                with self._noting("daemons"):
                    self._revival.revive()

    @contextlib.contextmanager
    def _noting(self, subject: str) -> Iterator[None]:
        """Put an error into the status, and into the log when it is new."""
        try:
            yield
            self._problems.pop(subject, None)
        except TrimtabError as error:
            if self._problems.get(subject) != str(error):
                log.warning("%s", error)
            self._problems[subject] = str(error)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[tuple[threading.Thread, list[threading.Thread]]]:
        """Threads of the keeper of paths, which resumes from an earlier status, and of reconcilers."""
        try:
            before: Status | None = read_status(self._host.name, self._folder)
        except NotFoundError:
            before = None
        self._keeper = PathKeeper(
            self._host,
            self._daemons.folder / "bfdd.sock",
            self._namespace,
            self._record,
            before.gone if before else None,
            before=before.uplinks if before else (),
        )
        parts: list[PathKeeper | Reconciler] = [self._keeper, *self._reconcilers]
        threads = [threading.Thread(target=part.run, daemon=True) for part in parts]
        try:
            for thread in threads:
                thread.start()
            self._keeper.ready.wait(self._host.timers.settle)
            yield threads[0], threads[1:]
        finally:
            for part in parts:
                part.stop()
            for thread in threads:
                thread.join()
            self._wake.close()
            self._woken.close()


@contextlib.contextmanager
def _low_latency() -> Iterator[None]:
    """Keep other threads and the garbage collector from delaying the keeper of paths."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def agent_runs(name: str) -> bool:
    """Whether an agent runs for that host."""
    return is_locked(RUN / name / _LOCK)


def forget_agent(name: str) -> None:
    """Remove files that agents of that host have written; refuses while one runs."""
    if agent_runs(name):
        raise TrimtabError(f"an agent runs for {name}; end it first, with Ctrl-C or SIGTERM")
    for file in (STATUS, FAILOVERS, Path(FAILOVERS).with_suffix(".old").name, _LOCK):
        (RUN / name / file).unlink(missing_ok=True)


@contextlib.contextmanager
def agent_of(
    host: FabricHost, on_failover: Callable[[Failover], None] = lambda failover: None
) -> Iterator[Agent]:
    """An agent for a host whose plan is applied, in this network namespace; FRR runs, and goes on."""
    daemons = Daemons(RUN / host.name, host_files(host))
    daemons.start()
    with contextlib.ExitStack() as stack:
        reconcilers = []
        for tenant in host.tenants:
            reconcilers.append(reconciler_of(host, tenant))
            stack.callback(reconcilers[-1].close)
        yield Agent(host, daemons, reconcilers=reconcilers, on_failover=on_failover)


def end_routing(name: str) -> None:
    """End FRR's daemons of that host and remove its agents' files; refuses while an agent runs."""
    forget_agent(name)
    Daemons(RUN / name, {}).stop()


def sessions_of(name: str) -> Sessions:
    """Sessions of that host, as FRR reports them now."""
    return ask_sessions(Daemons(RUN / name, {}).vtysh)
