"""One policy under one load: containers, an agent, a client, samples of use; and the contestants.

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
EVERY = 0.1  # s between two samples
_NONE = float("nan")
_LEAD = 1.0  # s before the first request
_CALIBRATION = 0.2  # s of CPU for each service's unit of work
MIB = 2**20
STATIC = {"static_0.75": 0.75, "static_1.0": 1.0, "static_1.5": 1.5}
CONTESTANTS = ("trimtab", "escra", "vpa", "autopilot", *STATIC)
_HISTORY = 600.0  # s of history that policies get, by repeating the observed run
_LEAST_MEMORY = 64.0 * MIB  # the smallest limit: a container needs some of it to start
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
    """Latencies of all requests (s, NaN if unanswered); use and limits by sample and service."""

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
        with ContainerGroup(hierarchy, f"/{name}") as group:
            group.limit_cpus(setting.cpus)  # the application's cap, whatever a policy does
        services = stack.enter_context(ServiceContainers([load.role for load in setting.services], name))
        for service, limit in zip(services.containers, start, strict=True):
            service.start(limit)
        for service in services.containers:
            service.wait_until_ready()
        if policy is not None:
            stack.enter_context(_agent(setting, services, policy, hierarchy))
        return _watched(setting, arrivals, seconds, services, list(start), again, hierarchy)


@contextlib.contextmanager
def _agent(
    setting: TrialSetting, services: ServiceContainers, policy: CpuPolicy, hierarchy: Hierarchy
) -> Iterator[None]:
    """A real agent in a thread, for as long as the context lasts."""
    select = (Selector(f"{services.group}/*"),)
    pool = Pool("bench", setting.cpus, setting.memory, select, policy=policy.name)
    agent = NodeAgent(
        [pool],
        hierarchy,
        lambda: [Container(service.cgroup) for service in services.containers],
        policies={policy.name: policy},
    )
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
    """Send the requests from another process; sample all services ten times a second; restart dead ones."""
    targets = [
        _target(service.port, load, requests)
        for service, load, requests in zip(services.containers, setting.services, arrivals, strict=True)
    ]
    samples: list[list[tuple[float, ...]]] = []
    samplers = [_Sampler(service, hierarchy) for service in services.containers]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client:
        begin = time.monotonic() + _LEAD  # the client's process needs a moment to start
        answer = client.submit(send, targets, begin)
        due = begin
        while not answer.done():
            due += EVERY
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() < begin + seconds:
                samples.append([sampler.sample() for sampler in samplers])
            for number, service in enumerate(services.containers):
                if service.died():
                    limits[number] = again(limits[number])
                    service.start(limits[number])
        latency = np.concatenate(answer.result())
    kills = sum(service.kills for service in services.containers)
    used, limit, saved, memory = np.array(samples[1:]).transpose(2, 0, 1)
    return Observed(latency, seconds, used, limit, saved, memory, kills)


class _Sampler:
    """Reads a service's control group, also across restarts; NaN while there is none."""

    def __init__(self, service: ServiceContainer, hierarchy: Hierarchy) -> None:
        self._service, self._hierarchy = service, hierarchy
        self._group: ContainerGroup | None = None
        self._before = (0.0, 0.0)

    def sample(self) -> tuple[float, ...]:
        """CPUs used since the last sample, limit of CPUs, CPUs that may be used on top, bytes of memory."""
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


def _target(port: int, load: ServiceLoad, requests: ServiceRequests) -> Target:
    unit = unit_seconds(load.role)
    keep = f"&keep={load.keep}&seconds={load.seconds:g}" if load.keep else ""
    paths = tuple(f"/?units={max(1, round(work / unit))}{keep}" for work in requests.work.tolist())
    return Target(port, tuple(requests.time.tolist()), paths)


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
    """One of `CONTESTANTS`, given the history."""
    peak, peak_memory = np.nanmax(history.used, axis=0), np.nanmax(history.memory, axis=0)
    if name in STATIC:
        cpus, memory = STATIC[name] * peak, STATIC[name] * peak_memory
        return SizedContestant(_limits(cpus, memory, setting))
    policy = POLICIES[name]()
    cpus = _cpus_after(policy, setting, np.nan_to_num(history.used))
    if policy.traps:
        return SizedContestant(tuple(Limit() for _ in setting.services), policy)
    memory = np.maximum(peak_memory * (1 + _MARGIN[name]), _VPA_LEAST if name == "vpa" else 0.0)
    return SizedContestant(_limits(cpus, memory, setting), policy, _more_after_a_kill)


def _cpus_after(policy: CpuPolicy, setting: TrialSetting, used: Array) -> Array:
    """CPUs that the policy gives each service after the history."""
    slots = np.arange(used.shape[1])
    pool, cap = np.zeros_like(slots), np.array([setting.cpus])
    floor = np.full(len(slots), 0.02)
    limit = fair_limits(np.full(len(slots), setting.cpus / len(slots)), floor, pool, cap)
    for period in range(round(_HISTORY / EVERY)):
        now = used[period % len(used)]
        period_use = CpuPeriod(EVERY, slots, pool, limit, now, now > limit, floor, cap)
        limit = fair_limits(Wishes.of(policy.target(period_use)).cpus, floor, pool, cap)
    return limit


def _limits(cpus: Array, memory: Array, setting: TrialSetting) -> tuple[Limit, ...]:
    memory = np.maximum(memory, _LEAST_MEMORY)
    fits = min(1.0, setting.cpus / float(np.sum(cpus)))
    fits_memory = min(1.0, setting.memory / float(np.sum(memory)))
    return tuple(Limit(float(c) * fits, float(m) * fits_memory) for c, m in zip(cpus, memory, strict=True))


def _more_after_a_kill(limit: Limit) -> Limit:
    """VPA and Autopilot raise the limit of a killed container by a fifth, or 100 MiB if that is more."""
    assert limit.memory is not None
    return Limit(limit.cpus, max(limit.memory * 1.2, limit.memory + 100 * MIB))
