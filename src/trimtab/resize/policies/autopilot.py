"""Google's Autopilot with its learning recommender (Rzadca and others, EuroSys 2020, 3.2).

Many small models, each a decay rate and a margin, record the cost of limits: how often use was above them,
how often below, and how often they changed. Each model proposes its cheapest limit; the cheapest model so far
is followed, and following another one costs too. The paper does not give its weights; these were set so that
overruns weigh ten times as much as unused CPU. Nor does it cover hard limits, which hide what a container
would have used: one that was throttled counts as above its limit.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.policies.policy import Array, CpuPeriod, Indices, SlotColumns

_BEYOND = 0.5  # of its limit, by which a throttled container counts as above it


@dataclass(frozen=True, slots=True)
class AutopilotSettings:
    """Period, models and costs."""

    every: float = 1.0  # s; five minutes in its paper, one second in Escra's best case for it
    decays: tuple[float, ...] = (0.02, 0.1, 0.5)  # per look
    margins: tuple[float, ...] = (0.0, 0.1, 0.25)  # of the proposed limit
    overrun: float = 1.0  # w_o: cost of a sample above the limit
    underrun: float = 0.1  # w_u: of one below
    change: float = 0.02  # w_ΔL: of another limit
    model_change: float = 0.02  # w_Δm: of another model
    least: float = 0.01  # CPUs, the smallest limit
    most: float = 64.0
    limits: int = 48  # between the smallest and the largest, evenly on a logarithmic scale


@dataclass(slots=True)
class Autopilot:
    """An ensemble of arg-min models for every container."""

    settings: AutopilotSettings = field(default_factory=AutopilotSettings)
    name: str = "autopilot"
    traps: bool = False
    saves: bool = False
    _grid: Array = field(init=False, repr=False)
    _state: SlotColumns = field(init=False, repr=False)
    _window: list[tuple[Indices, Array]] = field(init=False, repr=False, default_factory=list)
    _since: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        s = self.settings
        self._grid = np.geomspace(s.least, s.most, s.limits)
        models = len(s.decays) * len(s.margins)
        self._state = SlotColumns(
            over=(len(s.decays), s.limits),
            under=(len(s.decays), s.limits),
            proposed=(len(s.decays),),
            model_limit=(models,),
            model_cost=(models,),
            followed=(1,),
            limit=(1,),
        )

    def target(self, period: CpuPeriod) -> Array:
        """The current limit; once in `every` seconds the best model's limit."""
        self._state.reach(period.slot)
        beyond = np.maximum(period.used, period.limit) * (1 + _BEYOND)
        self._window.append((period.slot, np.where(period.throttled, beyond, period.used)))
        self._since += period.seconds
        if self._since < self.settings.every - 1e-9:
            return np.array(period.limit)
        above, below = self._shares(period.slot)
        self._window, self._since = [], 0.0
        over, under = self._fade(period.slot, above, below)
        proposed = self._propose(period.slot, over, under)
        return self._follow(period.slot, proposed, above, below)

    def forget(self, slots: Indices) -> None:
        self._state.forget(slots)

    def _shares(self, slots: Indices) -> tuple[Array, Array]:
        """Shares of the samples since the last look above each limit of the grid, and below."""
        width = int(slots.max()) + 1
        above, count = np.zeros((width, len(self._grid))), np.zeros(width)
        for sampled, used in self._window:
            mine = sampled < width
            above[sampled[mine]] += used[mine][:, None] > self._grid
            count[sampled[mine]] += 1
        part = above[slots] / np.maximum(count[slots], 1)[:, None]
        return part, 1 - part

    def _fade(self, slots: Indices, above: Array, below: Array) -> tuple[Array, Array]:
        """o(L) and u(L) of every decay rate: (1 - d) of the past and d of the present share."""
        decay = np.array(self.settings.decays)[None, :, None]
        for name, share in (("over", above), ("under", below)):
            self._state[name][slots] = (1 - decay) * self._state[name][slots] + decay * share[:, None]
        return self._state["over"][slots], self._state["under"][slots]

    def _propose(self, slots: Indices, over: Array, under: Array) -> Array:
        """Every decay rate's cheapest limit, the smallest of equally cheap ones."""
        s = self.settings
        before = self._state["proposed"][slots][:, :, None]
        moves = (before > 0) & (np.abs(np.log(self._grid / np.maximum(before, s.least))) > 0.05)
        cost = s.overrun * over + s.underrun * under + s.change * moves
        chosen = self._grid[np.argmin(cost, axis=2)]
        self._state["proposed"][slots] = chosen
        return np.asarray(chosen)

    def _follow(self, slots: Indices, proposed: Array, above: Array, below: Array) -> Array:
        """The limit of the cheapest model, including the costs of changes."""
        s, state = self.settings, self._state
        limit = (proposed[:, :, None] * (1 + np.array(s.margins))).reshape(len(slots), -1)
        decay = np.repeat(np.array(s.decays), len(s.margins))
        at = np.clip(np.searchsorted(self._grid, limit), 0, len(self._grid) - 1)
        rows = np.arange(len(slots))[:, None]
        moved = np.abs(limit - state["model_limit"][slots]) > 0.05 * limit
        now = s.overrun * above[rows, at] + s.underrun * below[rows, at] + s.change * moved
        cost = (1 - decay) * state["model_cost"][slots] + decay * now
        state["model_cost"][slots], state["model_limit"][slots] = cost, limit
        followed = state["followed"][slots]
        other = np.arange(limit.shape[1])[None] != followed
        change = np.abs(limit - state["limit"][slots]) > 0.05 * limit
        best = np.argmin(cost + s.model_change * other + s.change * change, axis=1)
        answer = limit[np.arange(len(slots)), best]
        state["followed"][slots], state["limit"][slots] = best[:, None], answer[:, None]
        return np.asarray(answer)
