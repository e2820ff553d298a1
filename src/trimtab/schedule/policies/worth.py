"""Value of every shape to every job of a round, in seconds of waiting saved per second."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.core import daly_interval
from trimtab.schedule.allocation import WAITING, Allocation, Bools, Jobs
from trimtab.schedule.checkpointing import efficiency, gang_rate
from trimtab.schedule.cluster import Cluster, Floats, Ints, Market


@dataclass(frozen=True, slots=True)
class TrimtabSettings:
    """Weights of the one objective."""

    crowd: float = 2.0
    """What the seconds that others wait count, against one's own."""
    remember: float = 0.1
    """How much of each round's prices goes into those that are remembered."""
    size: float = 0.2
    """How much longer jobs yield: twice as long is worth 2 to the minus this."""
    ageing: float = 0.15
    """How much older jobs gain: (1 + hours) to the power of this."""
    priority: float = 4.0
    """How many times more a second of one class of priority is worth than one of the class below."""
    urgency: float = 8.0
    """How much more it is worth, at most, as a hard deadline comes close; half of that for a soft one."""
    caution: float = 0.1
    """By how much more time than it needs a job with a deadline leaves spot nodes."""
    look: float = 300.0
    """Within how many seconds others may be stopped for it, and nodes found."""
    fairness: float = 0.5
    """How much a tenant gains that has less than its share: (share due / share had) to the power of this."""
    thrift: float = 0.0
    """Seconds somebody would wait to save a dollar; counts what is spent above the cheapest way."""
    explore: float = 0.3
    """What counts of the seconds that a job could save in shapes it may have only after smaller ones."""
    explore_most: float = 5.0
    """The most that trying more workers is worth per second."""
    fragments: float = 0.05
    """What a shape loses that leaves parts of nodes which fit hardly anybody."""
    loyalty: float = 0.03
    """How much less a round may be worth that changes less."""
    stay: float = 600.0
    """For how many seconds a job is expected to keep a shape."""
    stay_restarts: float = 4.0
    """The same, at least so many times its restart."""
    unknown: float = 1200.0
    """Seconds in the smallest shape that a job is believed to need while nothing is known."""
    unknown_restarts: float = 40.0
    """The same, at least so many times its restart: nobody starts slowly for a short job."""
    seconds: float = 0.5
    """The most the solver may take for a round."""


_CLASS = 10.0  # between two classes of priority
_MINUTE, _HOUR = 60.0, 3600.0
_NOTHING = 1e-9  # units of work of a job that is as good as done
_TIGHT = 0.5  # a deadline is close when the work takes more than this part of the time until then


@dataclass(frozen=True)
class Worth:
    """A round's jobs and shapes, with prices of accelerators, CPUs and bytes, and what tenants are due."""

    settings: TrimtabSettings
    jobs: Jobs
    cluster: Cluster
    previous: Allocation
    now: float
    prices: Floats
    due: Floats

    def value(self) -> Floats:
        """(jobs, shapes): what is saved, by whom and how surely, less the dollars it takes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            working = self.stay / (self.stay + self.pause)
            saved = (self.speed * self.cost_per_unit[:, None] + self.unlocked) * working
        saved *= self.urgency[:, None] * self.in_time * (1.0 - self.settings.fragments * self.fragments)
        spent = self.dollars_as_seconds * self.patience[:, None]
        return np.where(self.possible, self.weight[:, None] * (saved - spent), 0.0)

    @cached_property
    def left(self) -> Floats:
        """Work left as far as is known; while it is not, at least what the settings say."""
        jobs, settings = self.jobs, self.settings
        possible = (self.believed > 0) & (self.cluster.shape_workers >= jobs.least[:, None])
        fewest = np.where(possible, self.cluster.shape_workers, np.inf).min(axis=1, keepdims=True)
        small = possible & (self.cluster.shape_workers == fewest)
        slowest = np.where(small, self.believed, 0.0).max(axis=1)
        left = np.where(np.isnan(jobs.remaining), settings.unknown * slowest, jobs.remaining)
        long = np.maximum(left, settings.unknown_restarts * jobs.restart_seconds * slowest)
        return np.maximum(np.where(np.isinf(jobs.remaining_high), long, left), _NOTHING)

    @cached_property
    def speed(self) -> Floats:
        """Units per second in the long run: nodes that are taken away take unsaved work with them."""
        if not self.spot.any():
            return self.believed
        return self.believed * efficiency(self.interval, self.saving, self.saving, self.interruptions)

    @cached_property
    def saving(self) -> Floats:
        """Seconds it takes a job to save, believed to be those of a restart."""
        return np.maximum(self.jobs.restart_seconds, 1.0)[:, None]

    @cached_property
    def interruptions(self) -> Floats:
        """How often per second a job would lose a node in each shape."""
        reclaims = np.array([g.reclaims if g.market is Market.SPOT else 0.0 for g in self.cluster.groups])
        return gang_rate(self.nodes, reclaims[self.cluster.shape_group])

    @cached_property
    def interval(self) -> Floats:
        """Seconds of work between saves in each shape: what an interruption may cost."""
        return daly_interval(self.saving, self.interruptions)

    @cached_property
    def believed(self) -> Floats:
        """Units per second; what is not known is as slow per worker as the slowest that is."""
        speed, workers = self.jobs.speed, self.cluster.shape_workers
        unknown = np.isnan(speed)
        if not unknown.any():
            return speed
        known = np.where(speed > 0, speed / workers, np.inf).min(axis=1)
        each = np.where(np.isfinite(known), known, 1.0)
        return np.where(unknown, each[:, None] * workers, speed)

    @cached_property
    def accelerators(self) -> Floats:
        """How many each job would have in each shape."""
        return self.jobs.gpus[:, None] * self.cluster.shape_workers

    @cached_property
    def per_node(self) -> Ints:
        """How many a node of each shape's group has, at least one."""
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
            return self.pause + self.left[:, None] / self.speed

    @cached_property
    def stay(self) -> Floats:
        """For how long a job is expected to work in a shape."""
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
        paid_anyway = np.array([each.market is Market.RESERVED for each in self.cluster.groups], dtype=bool)
        rent = self.accelerators * np.where(paid_anyway, 0.0, self.cluster.gpu_price)[group]
        moving = self.jobs.egress[:, group] / np.maximum(self.stay, 1.0)
        dollars = rent + np.where(np.isfinite(moving), moving, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cheapest = np.where(self.allowed, dollars / self.speed, np.inf).min(axis=1, keepdims=True)
        least = np.where(np.isfinite(cheapest), cheapest, 0.0) * self.speed
        return self.settings.thrift * np.maximum(dollars - least, 0.0)

    @cached_property
    def cost(self) -> Floats:
        """Seconds that a unit of work costs everybody in each shape."""
        taken = self.cluster.shape_workers * (self.jobs.demand @ self.prices[self.cluster.shape_group].T)
        with np.errstate(divide="ignore"):
            return (1.0 + self.settings.crowd * taken + self.dollars_as_seconds) / self.speed

    @cached_property
    def cost_per_unit(self) -> Floats:
        """Seconds that a unit of work costs everybody in the cheapest shape the job may have now."""
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
        each = self.left * np.where(np.isfinite(spared), np.maximum(spared, 0.0), 0.0) / steps
        rate = np.minimum(each / (self.jobs.restart_seconds + _MINUTE), self.settings.explore_most)
        opens = self.allowed & (2 * workers > most[:, None])
        gained: Floats = self.settings.explore * rate[:, None] * opens
        return gained

    @cached_property
    def weight(self) -> Floats:
        """Weight of a job's seconds and dollars: by priority, size, age and what its tenant is due."""
        settings, jobs = self.settings, self.jobs
        size = np.maximum(self.left * self.cost_per_unit / _MINUTE, 1.0) ** -settings.size
        age = (1.0 + np.maximum(self.now - jobs.submitted, 0.0) / _HOUR) ** settings.ageing
        rank = settings.priority ** (jobs.priority / _CLASS)
        return size * age * rank * self.due[jobs.tenant]

    @cached_property
    def urgency(self) -> Floats:
        """How many times more its seconds count as a deadline comes close that can still be met."""
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
        """Shapes on nodes that may be taken away."""
        markets = np.array([group.market is Market.SPOT for group in self.cluster.groups], dtype=bool)
        return markets[self.cluster.shape_group]

    @cached_property
    def leaving(self) -> Bools:
        """Jobs for which it would soon be too late to finish elsewhere if spot nodes were taken away.

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
        """Jobs that wait, and whose hard deadline nothing can meet."""
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
        """Half for shapes that miss a close deadline which others would meet; none for spot to be left."""
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
        rent = self.accelerators * self.cluster.gpu_price[self.cluster.shape_group]
        dollars = rent * np.where(self.allowed, self.needs, 0.0)
        affordable: Bools = dollars <= (self.jobs.budget - self.jobs.spent)[:, None]
        return allowed & affordable

    @cached_property
    def allowed(self) -> Bools:
        """Shapes a job may have now, by its size."""
        workers = self.cluster.shape_workers
        return (self.speed > 0) & (workers >= self.jobs.least[:, None]) & (workers <= self.jobs.most[:, None])
