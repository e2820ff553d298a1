"""The bench of containers under load: requests that repeat, a client that does not wait, real containers."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench import BenchOptions, run_bench
from trimtab_bench.resize import SETTING
from trimtab_bench.resize.bundle import Limit, sweep
from trimtab_bench.resize.load import ServiceLoad, Target, arrivals, send
from trimtab_bench.resize.trial import CONTESTANTS, Observed, contestant, observe

from trimtab.core import BadInputError
from trimtab.kernel import Owner, mounted

SERVICES = SETTING.services
MIB = 2**20
needs_containers = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("runc") is None or mounted() is None,
    reason="needs root, runc and control groups",
)


@pytest.mark.parametrize("load", ["fixed", "exponential", "bursty"])
def test_the_same_seed_gives_the_same_requests_and_another_one_others(load: str) -> None:
    first, again, other = (arrivals(load, SERVICES, 10.0, seed) for seed in (1, 1, 2))
    for mine, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(mine.time, same.time)
        np.testing.assert_array_equal(mine.work, same.work)
        assert len(mine) != len(different) or not np.array_equal(mine.time, different.time)
        assert (np.diff(mine.time) >= 0).all()
        assert 0 <= mine.time[0] <= mine.time[-1] <= 10.0


def test_requests_of_the_trace_have_the_mean_rate_and_work_of_their_service(shared_data: Path) -> None:
    for service, mine in zip(SERVICES, arrivals("trace", SERVICES, 60.0, 3, shared_data), strict=True):
        assert len(mine) == pytest.approx(service.rate * 60, rel=0.02)
        assert mine.work.mean() == pytest.approx(service.work, rel=0.5)
        assert mine.time[-1] < 60.0


def test_a_trace_without_data_says_what_to_give() -> None:
    with pytest.raises(BadInputError, match="--data"):
        arrivals("trace", SERVICES, 1.0, 0)


def test_bursts_come_one_after_the_other_to_everyone() -> None:
    made = arrivals("bursty", SERVICES, 60.0, 5)
    cpus = [np.histogram(mine.time, 120, (0, 60), weights=mine.work)[0] * 2 for mine in made]
    for service, used in zip(SERVICES, cpus, strict=True):
        assert used.max() > 0.7 * service.burst_cpus
        assert np.median(used) < 1.5 * service.rate * service.work


def _history(used: float, seconds: int = 20) -> Observed:
    shape = (seconds * 10, len(SERVICES))
    use = np.full(shape, used)
    use[::10] *= 2
    empty = np.zeros(shape)
    return Observed(np.zeros(1), float(seconds), use, np.full(shape, np.nan), empty, empty + 100 * MIB, 0)


@pytest.mark.parametrize("name", CONTESTANTS)
@pytest.mark.parametrize("used", [0.05, 0.6])
def test_nobody_begins_with_more_than_the_application_may_have(name: str, used: float) -> None:
    start = contestant(name, SETTING, _history(used)).start
    assert len(start) == len(SERVICES)
    assert sum(limit.cpus or 0.0 for limit in start) <= SETTING.cpus * (1 + 1e-9)
    assert sum(limit.memory or 0.0 for limit in start) <= SETTING.memory * (1 + 1e-9)


def test_static_limits_are_multiples_of_the_peak_and_a_kill_is_followed_by_more_memory() -> None:
    history = _history(0.05)
    assert contestant("static_1.5", SETTING, history).start[0].cpus == pytest.approx(0.15)
    vpa = contestant("vpa", SETTING, history)
    assert vpa.start[0].memory == 250 * MIB
    assert vpa.again(Limit(0.1, 100.0 * MIB)).memory == 200 * MIB
    assert contestant("static_1.0", SETTING, history).again(Limit(0.1, 1.0)) == Limit(0.1, 1.0)


class _Slow(asyncio.Protocol):
    """Answers one request at a time, each after 50 ms."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        time.sleep(0.05)
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.fixture
def slow() -> Iterator[int]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(_Slow, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield int(server.sockets[0].getsockname()[1])
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()


def test_latency_counts_from_when_a_request_was_due(slow: int) -> None:
    due = tuple(np.arange(10) * 0.01)  # five times as many as can be answered
    (latency,) = send([Target(slow, due, ("/",) * 10)], time.monotonic() + 0.1)
    assert latency[-1] > latency[0]
    assert latency[-1] > 0.05 * 10 - due[-1] - 0.05
    assert latency[0] >= 0.05


def test_whoever_cannot_be_reached_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_bench.resize.load.DEADLINE", 0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        (latency,) = send([Target(nobody.getsockname()[1], (0.0,), ("/",))], time.monotonic())
    assert np.isnan(latency).all()


@needs_containers
def test_a_container_that_outgrows_its_limit_is_killed_counted_and_started_again() -> None:
    memory = ServiceLoad("session", 20.0, 0.002, 0.1, keep=8 * MIB, seconds=5.0)
    requests = arrivals("fixed", (memory,), 2.0, 0)
    seen = observe(
        type(SETTING)((memory,), 1.0, 512.0 * MIB),
        requests,
        2.0,
        [Limit(0.5, 64.0 * MIB)],
        again=lambda limit: Limit(limit.cpus, 512.0 * MIB),
    )
    assert seen.kills >= 1
    assert not np.isnan(seen.latency[-5:]).any()  # it is there again


@needs_containers
def test_a_quick_run_has_all_figures_and_leaves_no_group_behind() -> None:
    result = run_bench("resize", BenchOptions(quick=True, quiet=True))
    policies = result.figures["policies"]
    assert set(policies) == {"trimtab", "vpa", "static_1.5"}
    for name in policies:
        figures = policies[name]["bursty"]
        assert {"p50_ms", "p99_ms", "p999_ms", "throughput", "slack_p50", "slack_p99", "oom_kills"} <= set(
            figures
        )
        assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["p999_ms"]
    assert policies["trimtab"]["bursty"]["oom_kills"] == 0
    hierarchy = mounted()
    assert hierarchy is not None
    around = next(iter(hierarchy.folders.values())).parent  # runc makes groups below every controller
    assert not list(around.glob(f"**/{Owner.current().name('bench')}"))


@needs_containers
def test_what_a_killed_bench_left_behind_is_swept_away() -> None:
    code = (
        "import os, subprocess; from trimtab.kernel import Owner, mounted; "
        "name = Owner.current().name('bench'); "
        "child = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); "
        "places = [root / name / 'web' for root in mounted().folders.values()]; "
        "[place.mkdir(parents=True) for place in places]; "
        "[(place / 'cgroup.procs').write_text(str(child.pid)) for place in places]; "
        "print(name, child.pid)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    name, pid = told.split()
    hierarchy = mounted()
    assert hierarchy is not None
    sweep(hierarchy)
    assert not any((root / name).exists() for root in hierarchy.folders.values())
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
