"""One policy under one load: containers, an agent, a client, samples of use; and the policies compared.

All contestants have the same history: an observed run of the same kind of load from another seed, without
limits for single containers. Limits that would exceed the application's cap are scaled down to it.
"""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from trimtab.core import TrimtabError
from trimtab.kernel import ContainerGroup, Hierarchy, Owner, mounted
from trimtab.resize import (
    POLICIES,
    Container,
    CpuPeriod,
    CpuPolicy,
    NodeAgent,
    Pool,
    Selector,
    Wishes,
    fair_limits,
)
from trimtab_bench.resize.bundle import Limit, ServiceContainer, ServiceContainers, parent_group, sweep
from trimtab_bench.resize.load import ServiceLoad, ServiceRequests, Target, send
from trimtab_bench.resize.service import WORK

Array = NDArray[np.float64]
EVERY = 0.1  # s between two looks
_NONE = float("nan")
_LEAD = 1.0  # s before the first request
_CALIBRATION = 0.2  # s of CPU for each service's unit of work
MIB = 2**20
STATIC = {"static_0.75": 0.75, "static_1.0": 1.0, "static_1.5": 1.5}
CONTESTANTS = ("trimtab", "escra", "vpa", "autopilot", *STATIC)
_HISTORY = 600.0  # s that policies have seen before, by repeating what was observed
_LEAST_MEMORY = 64.0 * MIB  # that nobody gives less than: a container needs some of it to start
_VPA_LEAST = 250.0 * MIB  # its smallest recommendation of memory
_MARGIN = {"vpa": 0.15, "autopilot": 0.10}  # of memory, above the highest use seen


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """Services and caps, the same for every policy."""

    services: tuple[ServiceLoad, ...]
    cpus: float  # the application's cap
    memory: float  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Latencies of all requests (s, NaN if unanswered); use and limits by look and service."""

    latency: Array
    seconds: float
    used: Array  # CPUs
    limit: Array  # CPUs; NaN without a limit
    saved: Array  # CPUs that could be used in one period on top, if they had been left unused before
    memory: Array  # bytes
    kills: int


def observe(
    setting: TrialSetting,
    arrivals: Sequence[ServiceRequests],
    seconds: float,
    start: Sequence[Limit],
    policy: CpuPolicy | None = None,
    again: Callable[[Limit], Limit] = lambda limit: limit,
) -> Observed:
    """Run the services with these first limits, under a policy or none; `again` is the limit after a kill."""
    hierarchy = mounted()
    if hierarchy is None or os.geteuid() != 0:
        raise TrimtabError("this bench runs containers, which needs root and control groups")
    sweep(hierarchy)
    name = Owner.current().name("bench")
    with contextlib.ExitStack() as stack:
        stack.enter_context(parent_group(hierarchy, name))
        _limit_parent(hierarchy, name, setting.cpus)
        services = stack.enter_context(ServiceContainers([each.role for each in setting.services], name))
        for service, limit in zip(services.each, start, strict=True):
            service.start(limit)
        for service in services.each:
            service.wait_until_ready()
        if policy is not None:
            stack.enter_context(_sized(setting, services, policy, hierarchy))
        return _watched(setting, arrivals, seconds, services, list(start), again, hierarchy)


@contextlib.contextmanager
def _sized(
    setting: TrialSetting, services: ServiceContainers, policy: CpuPolicy, hierarchy: Hierarchy
) -> Iterator[None]:
    """A real agent in a thread, for as long as the context lasts."""
    select = (Selector(f"{services.group}/*"),)
    pool = Pool("bench", setting.cpus, setting.memory, select, policy=policy.name)

    def find() -> list[Container]:
        return [Container(service.cgroup) for service in services.each]

    agent = NodeAgent([pool], hierarchy, find, policies={policy.name: policy})
    thread = threading.Thread(target=agent.run, name="agent", daemon=True)
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join()


def _watched(
    setting: TrialSetting,
    arrivals: Sequence[ServiceRequests],
    seconds: float,
    services: ServiceContainers,
    limits: list[Limit],
    again: Callable[[Limit], Limit],
    hierarchy: Hierarchy,
) -> Observed:
    """Send the requests from a process of its own; look at everyone ten times a second; restart who dies."""
    targets = [
        _target(service.port, load, each)
        for service, load, each in zip(services.each, setting.services, arrivals, strict=True)
    ]
    looks: list[list[tuple[float, ...]]] = []
    eyes = [_Eye(service, hierarchy) for service in services.each]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client:
        begin = time.monotonic() + _LEAD  # the client's process needs a moment to start
        answer = client.submit(send, targets, begin)
        due = begin
        while not answer.done():
            due += EVERY
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() < begin + seconds:
                looks.append([eye.look() for eye in eyes])
            for number, service in enumerate(services.each):
                if service.died():
                    limits[number] = again(limits[number])
                    service.start(limits[number])
        latency = np.concatenate(answer.result())
    seen = np.array(looks[1:]).transpose(2, 0, 1)
    kills = sum(service.kills for service in services.each)
    return Observed(latency, seconds, seen[0], seen[1], seen[2], seen[3], kills)


class _Eye:
    """Looks at a service's control group, whatever becomes of the container; NaN while there is none."""

    def __init__(self, service: ServiceContainer, hierarchy: Hierarchy) -> None:
        self._service, self._hierarchy = service, hierarchy
        self._group: ContainerGroup | None = None
        self._before = (0.0, 0.0)

    def look(self) -> tuple[float, ...]:
        """CPUs used since the last look, the limit of CPUs, what may be used on top, bytes of memory."""
        now = time.monotonic()
        try:
            if self._group is None:
                self._group = ContainerGroup(self._hierarchy, self._service.cgroup)
                self._before = (now, self._group.cpu().used)
            (then, used), self._before = self._before, (now, self._group.cpu().used)
            cpus = (self._before[1] - used) / (now - then) if now > then else _NONE
            limit, saved = self._group.cpu_limit(), self._group.saved_limit()
            return cpus, _NONE if limit is None else limit, saved, float(self._group.memory())
        except TrimtabError:
            if self._group is not None:
                self._group.close()
                self._group = None
            return _NONE, _NONE, _NONE, _NONE


def _limit_parent(hierarchy: Hierarchy, name: str, cpus: float) -> None:
    """The application's cap, whatever anybody does."""
    with ContainerGroup(hierarchy, f"/{name}") as group:
        group.limit_cpus(cpus)


def _target(port: int, load: ServiceLoad, each: ServiceRequests) -> Target:
    unit = unit_seconds(load.role)
    keep = f"&keep={load.keep}&seconds={load.seconds:g}" if load.keep else ""
    paths = tuple(f"/?units={max(1, round(work / unit))}{keep}" for work in each.work.tolist())
    return Target(port, tuple(each.time.tolist()), paths)


@cache
def unit_seconds(role: str) -> float:
    """CPU seconds of a service's unit of work on this machine: the median of several tries."""
    tries, spent = list[float](), 0.0
    while spent < _CALIBRATION:
        start = time.thread_time()
        WORK[role](10)
        took = time.thread_time() - start
        tries.append(took / 10)
        spent += took
    return median(tries)


@dataclass(frozen=True, slots=True, eq=False)
class SizedContestant:
    """First limits, the policy that changes them if any, and the limit after the kernel has killed."""

    start: tuple[Limit, ...]
    policy: CpuPolicy | None = None
    again: Callable[[Limit], Limit] = lambda limit: limit


def contestant(name: str, setting: TrialSetting, history: Observed) -> SizedContestant:
    """One of `CONTESTANTS`, who has seen that history."""
    peak, peak_memory = np.nanmax(history.used, axis=0), np.nanmax(history.memory, axis=0)
    if name in STATIC:
        cpus, memory = STATIC[name] * peak, STATIC[name] * peak_memory
        return SizedContestant(_limits(cpus, memory, setting))
    policy = POLICIES[name]()
    wanted = _after(policy, setting, np.nan_to_num(history.used))
    if policy.traps:
        return SizedContestant(tuple(Limit() for _ in setting.services), policy)
    memory = np.maximum(peak_memory * (1 + _MARGIN[name]), _VPA_LEAST if name == "vpa" else 0.0)
    return SizedContestant(_limits(wanted, memory, setting), policy, _more_after_a_kill)


def _after(policy: CpuPolicy, setting: TrialSetting, used: Array) -> Array:
    """CPUs that the policy wants for each service once it has seen the history."""
    everyone = np.arange(used.shape[1])
    pool, cap = np.zeros_like(everyone), np.array([setting.cpus])
    floor = np.full(len(everyone), 0.02)
    limit = fair_limits(np.full(len(everyone), setting.cpus / len(everyone)), floor, pool, cap)
    for period in range(round(_HISTORY / EVERY)):
        now = used[period % len(used)]
        seen = CpuPeriod(EVERY, everyone, pool, limit, now, now > limit, floor, cap)
        limit = fair_limits(Wishes.of(policy.wanted(seen)).cpus, floor, pool, cap)
    return limit


def _limits(cpus: Array, memory: Array, setting: TrialSetting) -> tuple[Limit, ...]:
    memory = np.maximum(memory, _LEAST_MEMORY)
    fits = min(1.0, setting.cpus / float(np.sum(cpus)))
    fits_memory = min(1.0, setting.memory / float(np.sum(memory)))
    return tuple(Limit(float(c) * fits, float(m) * fits_memory) for c, m in zip(cpus, memory, strict=True))


def _more_after_a_kill(limit: Limit) -> Limit:
    """Both raise the limit of who was killed: by a fifth, or 100 MiB if that is more."""
    assert limit.memory is not None
    return Limit(limit.cpus, max(limit.memory * 1.2, limit.memory + 100 * MIB))
