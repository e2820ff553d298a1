"""Decisions, their outcomes, how good they were, and what models learn from them."""

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trimtab.core import Answer, BadInputError, Decision, Outcome, TrimtabError, from_plain
from trimtab.serve.operations.operation import After, Area, Limit, ShortText, Since, Text, Until, operation
from trimtab.store import Page, Role, Store, WantedDecisions, compare

if TYPE_CHECKING:
    from trimtab.predict import DriftFinding

log = logging.getLogger("trimtab.serve")

PREDICTION = "predict"
"""Kind of the decisions whose outcomes models learn from."""

_GATHER = 0.25  # s in which outcomes gather, so that drift is looked for once for all of them
_LOOKS = 20  # for an outcome whose transaction has not ended yet
_QUEUE = 10_000  # `trimtab models update` finds those that no longer fit in the ledger
_CALIBRATED = 500


@dataclass(frozen=True, slots=True)
class OwnedDecision(Decision):
    """A decision as the store shows it, with its tenant."""

    tenant: str = ""


Measured = Annotated[float, Field(allow_inf_nan=False)]


class Decisions(Area, name="decisions"):
    """Decisions of the tenants that may be seen."""

    __slots__ = ()

    @operation("GET", "/v1/decisions", stored=True, answer=Page[OwnedDecision])
    def page(
        self,
        limit: Limit = 50,
        after: After = None,
        kind: ShortText = None,
        subject: Text = None,
        tenant: ShortText = None,
        since: Since = None,
        until: Until = None,
    ) -> Page[Decision]:
        """Decisions, newest first."""
        ledger, tenants = self.backend.store.ledger, self.principal.visible_tenants(tenant)
        wanted = WantedDecisions(kind, subject, since, until, tenants)
        return self.stored(ledger.page, ledger.page_text)(limit, wanted, after)

    @operation("GET", "/v1/decisions/{id}", stored=True, tagged=True, answer=OwnedDecision)
    def get(self, id: str) -> Decision:
        """One decision, by its id or a unique start of it."""
        ledger = self.backend.store.ledger
        return self.stored(ledger.get, ledger.text)(id, self.principal.tenants)

    @operation("POST", "/v1/decisions", least=Role.USER, content_key=True)
    def record(self, decision: Decision, tenant: str | None = None) -> Decision:
        """Keep a decision that was made elsewhere, under a new id unless the token is for all tenants.

        A token of one tenant could otherwise learn from a refusal that another tenant has the id.
        """
        owner = self.principal.owner_of_new(tenant)
        kept = decision if self.principal.tenants is None else replace(decision, id=secrets.token_hex(6))

        def effect() -> Decision:
            self.backend.store.ledger.record(kept, owner)
            return kept

        return self.write(
            "decisions.record", owner, effect, lambda d: (d.id, {"kind": d.kind, "subject": d.subject})
        )

    @operation("GET", "/v1/decisions/{id}/outcomes")
    def outcomes(self, id: str) -> tuple[Outcome, ...]:
        """Outcomes of a decision, oldest first."""
        return self.backend.store.ledger.outcomes(id, self.principal.tenants)

    @operation("POST", "/v1/decisions/{id}/outcomes", least=Role.USER)
    def record_outcome(
        self,
        id: str,
        measured: Annotated[Mapping[str, Measured], Field(min_length=1, max_length=100)],
        note: Annotated[str, Field(max_length=10_000)] = "",
    ) -> Outcome:
        """Record what was measured after a decision (its id or a unique start of it).

        Quantities have the names of its estimates; they are in seconds, dollars and bytes.
        """
        if any("\n" in name or len(name) > 200 for name in measured):
            raise BadInputError("body.measured: a quantity's name is one line of at most 200 characters")
        store, tenants = self.backend.store, self.principal.tenants
        made = json.loads(store.ledger.text(id, tenants))
        outcome = Outcome(made["id"], self.backend.clock.now(), dict(measured), note)

        def effect() -> Outcome:
            store.ledger.record_outcome(outcome, tenants)
            return outcome

        kept = self.write(
            "decisions.outcome", made["tenant"], effect, lambda o: (o.decision_id, {"measured": o.measured})
        )
        if made["kind"] == PREDICTION and self.backend.learner is not None:
            self.backend.learner.add(store, made, kept)
        return kept

    def note_outcome(self, outcome: Outcome) -> "tuple[DriftFinding, ...]":
        """Note a recorded outcome for the models at once; the drift that it shows and that was not known."""
        self.principal.require(self.scope, "write", Role.USER)
        store, tenants = self.backend.store, self.principal.tenants
        made = store.ledger.get(outcome.decision_id, tenants)
        if made.kind != PREDICTION:
            return ()
        tenant = json.loads(store.ledger.text(made.id, tenants))["tenant"]
        return _drift(store, _note(store, made, outcome, tenant), tenant, outcome.recorded)


@dataclass(slots=True)
class _Pending:
    made: Mapping[str, Any]
    outcome: Outcome
    looks: int = 0


class OutcomeLearner:
    """Notes outcomes of predictions for the models in a thread of its own: no request waits for it."""

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque(maxlen=_QUEUE)
        self._lock = threading.Lock()
        self._running = False

    def add(self, store: Store, made: Mapping[str, Any], outcome: Outcome) -> None:
        """Note the outcome of a decision, given as JSON with its tenant, once its transaction has ended."""
        with self._lock:
            self._pending.append(_Pending(made, outcome))
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._run, args=(store,), name="outcomes", daemon=True).start()

    def _run(self, store: Store) -> None:
        while True:
            time.sleep(_GATHER)
            with self._lock:
                taken = list(self._pending)
                self._pending.clear()
                if not taken:
                    self._running = False
                    return
            try:
                self._note_all(store, taken)
            except TrimtabError as error:
                log.warning("outcomes are not noted for the models now: %s", error)
            except Exception:
                log.exception("outcomes are not noted for the models now")

    def _note_all(self, store: Store, taken: list[_Pending]) -> None:
        last: dict[str, tuple[int | None, float]] = {}
        for each in taken:
            if each.outcome in store.ledger.outcomes(each.made["id"]):
                tenant = each.made["tenant"]
                decision = from_plain(Decision, {k: v for k, v in each.made.items() if k != "tenant"})
                last[tenant] = _note(store, decision, each.outcome, tenant), each.outcome.recorded
            elif each.looks < _LOOKS:
                each.looks += 1
                with self._lock:
                    self._pending.append(each)
        for tenant, (event, recorded) in last.items():
            _drift(store, event, tenant, recorded)


def _note(store: Store, decision: Decision, outcome: Outcome, tenant: str) -> int | None:
    from trimtab.predict import note_outcome

    return note_outcome(store, decision, outcome, tenant)


def _drift(store: Store, event: int | None, tenant: str, now: float) -> "tuple[DriftFinding, ...]":
    from trimtab.predict import Versions, drift_after

    return () if event is None else tuple(drift_after(store, event, Versions().since, now, tenant))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Outcomes of one kind of decision and one quantity, counted.

    `held` of the stated intervals had the truth in them, and a share `promised` of them should have. Where
    rule and model both had answered (`duels`), the model was nearer `model_wins` times, the rule `rule_wins`.
    """

    kind: str
    quantity: str
    outcomes: int
    held: int
    promised: float
    duels: int
    model_wins: int
    rule_wins: int


class Calibrations(Area, name="calibration", scope="decisions"):
    """Calibration of the newest decisions that have an outcome."""

    __slots__ = ()

    @operation("GET", "/v1/decisions/calibration", slow=True)
    def by_kind(
        self,
        kind: ShortText = None,
        newest: Annotated[int, Field(ge=1, le=2000, description="Decisions to look at.")] = _CALIBRATED,
    ) -> tuple[Calibration, ...]:
        """Rule against model, and how often intervals held, over the newest decisions with outcomes."""
        ledger, tenants = self.backend.store.ledger, self.principal.tenants
        found = ledger.page(newest, WantedDecisions(kind, tenants=tenants))
        return calibrations((made, ledger.outcomes(made.id, tenants)) for made in found.items)


def calibrations(pairs: Iterable[tuple[Decision, tuple[Outcome, ...]]]) -> tuple[Calibration, ...]:
    """Calibration of decisions and their outcomes; the last outcome of a decision counts."""
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
        """Count which of rule and model was nearer, where both answered about the same action."""
        if model is None or model.action != rule.action:
            return
        by_rule, by_model = rule.estimates.get(quantity), model.estimates.get(quantity)
        if by_rule is None or by_model is None:
            return
        self.duels += 1
        off_rule, off_model = abs(by_rule.value - truth), abs(by_model.value - truth)
        self.model_wins += off_model < off_rule
        self.rule_wins += off_rule < off_model
