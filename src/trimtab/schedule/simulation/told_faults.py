"""Faults as somebody types them: "node-loss=1/30d,spot=0.1/h,slow=2%,job-failure=0.01/h"."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.core import BadInputError, did_you_mean, parse_duration, parse_rate
from trimtab.schedule.cluster import Group, Market
from trimtab.schedule.simulation.faults import FaultRates, Faults, NoFaults, RandomFaults


@dataclass(frozen=True, slots=True)
class ToldFaults:
    """How often what goes wrong; `reclaims`, per second, replaces what spot groups say of themselves."""

    rates: FaultRates = field(default_factory=FaultRates)
    reclaims: float | None = None

    def groups(self, groups: Sequence[Group]) -> tuple[Group, ...]:
        """The groups, their spot nodes reclaimed as told."""
        if self.reclaims is None:
            return tuple(groups)
        spot = [group.market is Market.SPOT for group in groups]
        if not any(spot):
            raise BadInputError("spot is told as a fault, but no group of the cluster is of the market spot")
        return tuple(
            replace(group, reclaims=self.reclaims) if is_spot else group
            for group, is_spot in zip(groups, spot, strict=True)
        )

    def source(self, groups: Sequence[Group], seed: int) -> Faults:
        """Where a simulation's faults come from: spot nodes are reclaimed even if nothing else is told."""
        reclaimed = any(group.market is Market.SPOT and group.reclaims > 0 for group in groups)
        return (
            RandomFaults(groups, self.rates, seed) if reclaimed or self.rates != FaultRates() else NoFaults()
        )


def parse_faults(text: str) -> ToldFaults:
    """Names with values, separated by commas."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _NAMES or not equals:
            hint = did_you_mean(name, _NAMES) or f"; there are {', '.join(_NAMES)}"
            raise BadInputError(f'faults: "{part.strip()}" is none{hint}, written name=value')
        try:
            values[name] = _NAMES[name](value)
        except BadInputError as error:
            raise BadInputError(f"faults: {name}: {error}") from None
    reclaims = values.pop("spot", None)
    return ToldFaults(FaultRates(**{name.replace("-", "_"): each for name, each in values.items()}), reclaims)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadInputError(f'"{text}" is not a share of nodes; write it like 0.02 or 2%')
    return share


def _times(text: str) -> float:
    try:
        times = float(text)
    except ValueError:
        times = 0.0
    if not 1 <= times < float("inf"):
        raise BadInputError(f'"{text}" must be a number of at least 1: how many times slower slow nodes are')
    return times


def _away(text: str) -> float:
    seconds = parse_duration(text)
    if seconds == 0:
        raise BadInputError("a node that is back at once was never gone; write a duration like 30m")
    return seconds


_NAMES: Mapping[str, Callable[[str], float]] = {
    "node-loss": parse_rate,
    "repair": _away,
    "spot": parse_rate,
    "refill": _away,
    "slow": _share,
    "slowness": _times,
    "job-failure": parse_rate,
}
