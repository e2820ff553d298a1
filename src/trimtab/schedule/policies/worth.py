"""Value of every shape to every job of a round, in seconds of waiting saved per second."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.core import daly_interval, format_money
from trimtab.schedule.allocation import WAITING, Allocation, Bools, JobColumns
from trimtab.schedule.checkpointing import efficiency, gang_rate
from trimtab.schedule.cluster import Cluster, Floats, Ints, Market
from trimtab.schedule.policies.filling import NO_GROUP_HOLDS_IT, deadline_missed


@dataclass(frozen=True, slots=True)
class TrimtabSettings:
    """Weights of the one objective."""

    crowd: float = 2.0
    """Weight of a second that other jobs wait, against one of the job's own."""
    remember: float = 0.1
    """Weight of a round's prices in the moving average."""
    size: float = 0.2
    """Weight of the work left: twice as much counts 2 to the minus this."""
    ageing: float = 0.15
    """Weight of age: (1 + hours) to the power of this."""
    priority: float = 4.0
    """Factor on the seconds of a job for each class of priority above normal."""
    urgency: float = 8.0
    """Largest extra factor as a hard deadline comes close; half of it for a soft one."""
    caution: float = 0.1
    """Reserve of time, as a share of the time needed, with which a job with a deadline leaves spot nodes."""
    look: float = 300.0
    """Seconds to stop other jobs and find nodes for a job that leaves spot nodes."""
    fairness: float = 0.5
    """Weight of a tenant's deficit: (share due / share had) to the power of this."""
    thrift: float = 0.0
    """Seconds of waiting that a dollar above the cheapest way is worth."""
    explore: float = 0.3
    """Part of the seconds that a job could save in shapes it may have only after smaller ones."""
    explore_most: float = 5.0
    """Largest worth per second of trying more workers."""
    fragments: float = 0.05
    """Loss of a shape that leaves parts of nodes in sizes which fit few jobs."""
    loyalty: float = 0.03
    """Share by which an answer may be worth less if it changes less."""
    stay: float = 600.0
    """Seconds for which a job is expected to keep a shape."""
    stay_restarts: float = 4.0
    """Lower bound of `stay`, in restarts of the job."""
    unknown: float = 1200.0
    """Seconds in the smallest shape that a job of unknown length is assumed to need."""
    unknown_restarts: float = 40.0
    """Lower bound of `unknown`, in restarts of the job."""
    seconds: float = 0.5
    """Most seconds that the solver may take for a round."""


_CLASS = 10.0  # between two classes of priority
_MINUTE, _HOUR = 60.0, 3600.0
_NOTHING = 1e-9  # units of work of a job that is as good as done
_TIGHT = 0.5  # a deadline is close when the work takes more than this part of the time until then


@dataclass(frozen=True)
class Worth:
    """A round's jobs and shapes, with prices of accelerators, CPUs and bytes, and what tenants are due."""

    settings: TrimtabSettings
    jobs: JobColumns
    cluster: Cluster
    previous: Allocation
    now: float
    prices: Floats
    due: Floats

    def value(self) -> Floats:
        """(jobs, shapes): weighted seconds saved per second, less the dollars spent."""
        with np.errstate(divide="ignore", invalid="ignore"):
            working = self.stay / (self.stay + self.pause)
            saved = (self.speed * self.cost_per_unit[:, None] + self.unlocked) * working
        saved *= self.urgency[:, None] * self.in_time * (1.0 - self.settings.fragments * self.fragments)
        spent = self.dollars_as_seconds * self.patience[:, None]
        return np.where(self.possible, self.weight[:, None] * (saved - spent), 0.0)

    @cached_property
    def work_left(self) -> Floats:
        """Remaining work; where unknown, at least the amount in the settings."""
        jobs, settings = self.jobs, self.settings
        possible = (self.believed > 0) & (self.cluster.shape_workers >= jobs.least[:, None])
        fewest = np.where(possible, self.cluster.shape_workers, np.inf).min(axis=1, keepdims=True)
        small = possible & (self.cluster.shape_workers == fewest)
        slowest = np.where(small, self.believed, 0.0).max(axis=1)
        work = np.where(np.isnan(jobs.remaining), settings.unknown * slowest, jobs.remaining)
        long = np.maximum(work, settings.unknown_restarts * jobs.restart_seconds * slowest)
        return np.maximum(np.where(np.isinf(jobs.remaining_high), long, work), _NOTHING)

    @cached_property
    def speed(self) -> Floats:
        """Units per second in the long run, less the unsaved work that reclaimed nodes lose."""
        if not self.spot.any():
            return self.believed
        return self.believed * efficiency(self.interval, self.saving, self.saving, self.interruptions)

    @cached_property
    def saving(self) -> Floats:
        """Seconds that a save takes, assumed to be those of a restart."""
        return np.maximum(self.jobs.restart_seconds, 1.0)[:, None]

    @cached_property
    def interruptions(self) -> Floats:
        """Interruptions per second of a job in each shape: reclaims of its nodes."""
        reclaims = np.array([g.reclaims if g.market is Market.SPOT else 0.0 for g in self.cluster.groups])
        return gang_rate(self.nodes, reclaims[self.cluster.shape_group])

    @cached_property
    def interval(self) -> Floats:
        """Seconds of work between saves in each shape, which an interruption may cost."""
        return daly_interval(self.saving, self.interruptions)

    @cached_property
    def believed(self) -> Floats:
        """Units per second; unknown ones are as slow per worker as the slowest known one."""
        speed, workers = self.jobs.speed, self.cluster.shape_workers
        unknown = np.isnan(speed)
        if not unknown.any():
            return speed
        slowest = np.where(speed > 0, speed / workers, np.inf).min(axis=1)
        per_worker = np.where(np.isfinite(slowest), slowest, 1.0)
        return np.where(unknown, per_worker[:, None] * workers, speed)

    @cached_property
    def accelerators(self) -> Floats:
        """Accelerators that each job would have in each shape."""
        return self.jobs.gpus[:, None] * self.cluster.shape_workers

    @cached_property
    def per_node(self) -> Ints:
        """Accelerators of a node of each shape's group, at least one."""
        sizes = np.array([max(1, group.gpus) for group in self.cluster.groups], dtype=np.int64)
        return sizes[self.cluster.shape_group]

    @cached_property
    def nodes(self) -> Floats:
        """The fewest nodes that hold each job's accelerators in each shape."""
        nodes: Floats = np.maximum(np.ceil(self.accelerators / self.per_node), 1.0)
        return nodes

    @cached_property
    def pause(self) -> Floats:
        """Seconds before a job works in a shape: its restart and its data; none in the shape it has."""
        fetch = self.jobs.fetch[:, self.cluster.shape_group]
        pause = self.jobs.restart_seconds[:, None] + fetch
        running = np.flatnonzero(self.previous.shape != WAITING)
        pause[running, self.previous.shape[running]] = 0.0
        return pause

    @cached_property
    def needs(self) -> Floats:
        """Seconds until a job would be done in each shape."""
        with np.errstate(divide="ignore"):
            return self.pause + self.work_left[:, None] / self.speed

    @cached_property
    def stay(self) -> Floats:
        """Seconds for which a job is expected to work in a shape."""
        settings = self.settings
        expected = np.maximum(settings.stay, settings.stay_restarts * self.jobs.restart_seconds)
        return np.minimum(self.needs - self.pause, expected[:, None])

    @cached_property
    def dollars_as_seconds(self) -> Floats:
        """Cost of a second in each shape above the cheapest way to the same work, in seconds.

        Data that must be fetched first is included, reserved nodes are not: they are paid for anyway. Waiting
        saves nothing where nothing is cheaper.
        """
        if self.settings.thrift == 0.0:
            return np.zeros_like(self.jobs.speed)
        group = self.cluster.shape_group
        paid_anyway = np.array([g.market is Market.RESERVED for g in self.cluster.groups], dtype=bool)
        rent = self.accelerators * np.where(paid_anyway, 0.0, self.cluster.gpu_price)[group]
        moving = self.jobs.egress[:, group] / np.maximum(self.stay, 1.0)
        dollars = rent + np.where(np.isfinite(moving), moving, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cheapest = np.where(self.allowed, dollars / self.speed, np.inf).min(axis=1, keepdims=True)
        least = np.where(np.isfinite(cheapest), cheapest, 0.0) * self.speed
        return self.settings.thrift * np.maximum(dollars - least, 0.0)

    @cached_property
    def cost(self) -> Floats:
        """Seconds that a unit of work costs all jobs in each shape."""
        charged = self.cluster.shape_workers * (self.jobs.demand @ self.prices[self.cluster.shape_group].T)
        with np.errstate(divide="ignore"):
            return (1.0 + self.settings.crowd * charged + self.dollars_as_seconds) / self.speed

    @cached_property
    def cost_per_unit(self) -> Floats:
        """Seconds that a unit of work costs all jobs in the cheapest shape that the job may have now."""
        least = np.where(self.allowed, self.cost, np.inf).min(axis=1)
        return np.where(np.isfinite(least), least, 0.0)

    @cached_property
    def unlocked(self) -> Floats:
        """Gain per second of trying more workers, for jobs that may have more only after that.

        The seconds it could save in the best of all shapes are shared by the steps that lead there.
        """
        workers, most = self.cluster.shape_workers, self.jobs.most
        best = self.cost.argmin(axis=1)
        spared = self.cost_per_unit - self.cost[np.arange(len(self.jobs)), best]
        steps = np.ceil(np.log2(np.maximum(2.0 * workers[best] / most, 2.0)))
        per_step = self.work_left * np.where(np.isfinite(spared), np.maximum(spared, 0.0), 0.0) / steps
        rate = np.minimum(per_step / (self.jobs.restart_seconds + _MINUTE), self.settings.explore_most)
        opens = self.allowed & (2 * workers > most[:, None])
        gained: Floats = self.settings.explore * rate[:, None] * opens
        return gained

    @cached_property
    def weight(self) -> Floats:
        """Weight of a job's seconds and dollars: by priority, size, age and what its tenant is due."""
        settings, jobs = self.settings, self.jobs
        size = np.maximum(self.work_left * self.cost_per_unit / _MINUTE, 1.0) ** -settings.size
        age = (1.0 + np.maximum(self.now - jobs.submitted, 0.0) / _HOUR) ** settings.ageing
        rank = settings.priority ** (jobs.priority / _CLASS)
        return size * age * rank * self.due[jobs.tenant]

    @cached_property
    def urgency(self) -> Floats:
        """Factor on a job's seconds as a deadline that can still be met comes close."""
        gain = np.where(self.jobs.hard, self.settings.urgency, self.settings.urgency / 2.0)
        return 1.0 + gain * np.where(self.pressure <= 1.0, self.pressure**2, 0.0)

    @cached_property
    def patience(self) -> Floats:
        """Weight of dollars: less as a deadline comes close, zero for jobs that must leave spot."""
        close = (1.0 - self.pressure) / (1.0 - _TIGHT)
        patience = np.where(self.pressure <= 1.0, np.clip(close, 0.0, 1.0), 1.0)
        return np.where(self.leaving, 0.0, patience)

    @cached_property
    def spot(self) -> Bools:
        """Shapes on spot nodes, which may be reclaimed."""
        markets = np.array([group.market is Market.SPOT for group in self.cluster.groups], dtype=bool)
        return markets[self.cluster.shape_group]

    @cached_property
    def leaving(self) -> Bools:
        """Jobs for which it would soon be too late to finish elsewhere if spot nodes were reclaimed.

        Losing them costs what was not saved, at most all the work, and another restart.
        """
        ahead = self.jobs.deadline - self.now
        if not self.spot.any() or np.isinf(ahead).all():
            return np.zeros(len(self.jobs), dtype=bool)
        safe = np.where(self.spot, np.inf, self.needs).min(axis=1)
        unsaved = np.where(self.spot & self.allowed, np.minimum(self.interval, self.needs), 0.0).max(axis=1)
        reserve = safe * (1.0 + self.settings.caution) + self.settings.look + unsaved
        leaving: Bools = (reserve > ahead) & (safe <= ahead)
        return leaving

    @cached_property
    def hopeless(self) -> Bools:
        """Waiting jobs whose hard deadline no shape can meet."""
        hopeless: Bools = self.jobs.hard & (self.pressure > 1.0) & (self.previous.shape == WAITING)
        return hopeless

    @cached_property
    def pressure(self) -> Floats:
        """The part of the time until a deadline that the work needs at its fastest; above 1, too late."""
        ahead = self.jobs.deadline - self.now
        with np.errstate(divide="ignore", invalid="ignore"):
            part = self.needs.min(axis=1) / ahead
        return np.where(np.isinf(ahead), 0.0, np.where(ahead <= 0.0, np.inf, part))

    @cached_property
    def in_time(self) -> Floats:
        """Factor: 0.5 where a shape misses a close deadline that others meet; 0 for spot to be left."""
        ahead = (self.jobs.deadline - self.now)[:, None]
        close = (self.pressure > _TIGHT) & (self.pressure <= 1.0)
        factor = np.where(close[:, None] & (self.needs > ahead), 0.5, 1.0)
        return np.where(self.leaving[:, None] & self.spot, 0.0, factor)

    @cached_property
    def fragments(self) -> Floats:
        """The part of its last node that a shape leaves in a size which does not divide the node."""
        over = np.mod(self.accelerators, self.per_node)
        with np.errstate(divide="ignore", invalid="ignore"):
            odd = (over > 0) & (np.mod(self.per_node, over) > 1e-9)
        return np.where(odd, 1.0 - over / self.per_node, 0.0)

    @cached_property
    def possible(self) -> Bools:
        """Shapes in which a job runs, and can be finished within its budget."""
        allowed = self.allowed & ~self.hopeless[:, None]
        if np.isinf(self.jobs.budget).all():
            return allowed
        affordable: Bools = self.dollars_to_end <= (self.jobs.budget - self.jobs.spent)[:, None]
        return allowed & affordable

    @cached_property
    def dollars_to_end(self) -> Floats:
        """Rent until a job would be done in each allowed shape."""
        rent = self.accelerators * self.cluster.gpu_price[self.cluster.shape_group]
        return rent * np.where(self.allowed, self.needs, 0.0)

    def why_impossible(self, row: int) -> str:
        """The reason why no shape is worth anything to a job."""
        jobs, allowed = self.jobs, self.allowed[row]
        if self.hopeless[row]:
            note = " (assumed, because its length is not known)" if np.isnan(jobs.remaining[row]) else ""
            return deadline_missed(float(self.needs[row].min()), float(jobs.deadline[row] - self.now), note)
        if not allowed.any():
            return NO_GROUP_HOLDS_IT
        if not self.possible[row].any():
            least, budget = float(self.dollars_to_end[row][allowed].min()), float(jobs.budget[row])
            unspent = format_money(budget - float(jobs.spent[row]))
            return (
                f"its budget does not suffice: {unspent} of {format_money(budget)} are left,"
                f" and it needs about {format_money(least)}"
            )
        return "every shape that it may have costs more than the waiting it saves"

    @cached_property
    def allowed(self) -> Bools:
        """Shapes a job may have now, by its size."""
        workers = self.cluster.shape_workers
        return (self.speed > 0) & (workers >= self.jobs.least[:, None]) & (workers <= self.jobs.most[:, None])
