"""How good decisions were: who was nearer to the truth, rule or model, and how often ranges held."""

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.core import Answer, Decision, Outcome
from trimtab.serve.operations.decisions import AREA
from trimtab.serve.operations.desk import Area
from trimtab.store import WantedDecisions, compare

_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of one kind of decision and one quantity: how many outcomes, and what they say.

    `held` of the stated ranges had the truth in them, and a share `promised` of them should have. Where rule
    and model both had spoken (`duels`), the model was nearer `model_wins` times, the rule `rule_wins` times.
    """

    kind: str
    quantity: str
    outcomes: int
    held: int
    promised: float
    duels: int
    model_wins: int
    rule_wins: int


class Calibrations(Area):
    """Figures over the newest decisions that have an outcome."""

    __slots__ = ()

    def by_kind(self, kind: str | None = None, newest: int = _LOOKED_AT) -> tuple[Calibration, ...]:
        """Of the `newest` decisions, by kind and quantity."""
        self.principal.require(AREA)
        ledger = self.desk.store.ledger
        found = ledger.page(newest, self.allowed(WantedDecisions(kind)))
        pairs = ((made, ledger.outcomes(made.id, self.principal.tenants)) for made in found.items)
        return calibrations(pairs)


def calibrations(pairs: Iterable[tuple[Decision, tuple[Outcome, ...]]]) -> tuple[Calibration, ...]:
    """Of decisions and their outcomes; the last outcome of a decision counts."""
    counts: dict[tuple[str, str], _Count] = {}
    for made, outcomes in pairs:
        for each in compare(made, outcomes[-1]) if outcomes else ():
            count = counts.setdefault((made.kind, each.quantity), _Count())
            count.outcomes += 1
            count.held += each.held
            count.promised += each.estimate.coverage
            count.judge(made.rule, made.model, each.quantity, each.measured)
    return tuple(
        Calibration(
            kind,
            quantity,
            count.outcomes,
            count.held,
            count.promised / count.outcomes,
            count.duels,
            count.model_wins,
            count.rule_wins,
        )
        for (kind, quantity), count in sorted(counts.items())
    )


@dataclass(slots=True)
class _Count:
    outcomes: int = 0
    held: int = 0
    promised: float = 0.0
    duels: int = 0
    model_wins: int = 0
    rule_wins: int = 0

    def judge(self, rule: Answer, model: Answer | None, quantity: str, truth: float) -> None:
        """Who was nearer, where both said something about the same action."""
        if model is None or model.action != rule.action:
            return
        said, learned = rule.estimates.get(quantity), model.estimates.get(quantity)
        if said is None or learned is None:
            return
        self.duels += 1
        off_rule, off_model = abs(said.value - truth), abs(learned.value - truth)
        self.model_wins += off_model < off_rule
        self.rule_wins += off_rule < off_model
