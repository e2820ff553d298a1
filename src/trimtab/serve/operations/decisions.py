"""Decisions, their outcomes, their calibration, and what models learn from them."""

import json
import logging
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trimtab.core import Decision, Outcome, TrimtabError, from_plain
from trimtab.serve.operations.operation import (
    After,
    Area,
    Limit,
    ShortText,
    Since,
    Text,
    Until,
    operation,
)
from trimtab.store import Comparison, DecisionFilter, Page, Role, Store, compare

if TYPE_CHECKING:
    from trimtab.predict import DriftFinding

log = logging.getLogger("trimtab.serve")

PREDICTION = "predict"
"""Kind of the decisions whose outcomes models learn from."""

_GATHER = 0.25  # s in which outcomes gather, so that drift is looked for once for all of them
_TRIES = 20  # to find an outcome whose transaction has not ended yet
_QUEUE = 10_000  # `trimtab models update` finds in the ledger those that do not fit
_CALIBRATED = 500


@dataclass(frozen=True, slots=True)
class OwnedDecision(Decision):
    """A decision as the store shows it, with its tenant."""

    tenant: str = ""


Measured = Annotated[float, Field(allow_inf_nan=False)]
QuantityName = Annotated[str, Field(pattern="^[^\n]{0,200}$")]


class DecisionOperations(Area, name="decisions"):
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
        criteria = DecisionFilter(kind, subject, since, until, tenants)
        return self.stored(ledger.page, ledger.page_text)(limit, criteria, after)

    @operation("GET", "/v1/decisions/{id}", stored=True, tagged=True, answer=OwnedDecision)
    def get(self, id: str) -> Decision:
        """One decision, by its id or a unique start of it."""
        ledger = self.backend.store.ledger
        return self.stored(ledger.get, ledger.text)(id, self.principal.tenants)

    @operation("POST", "/v1/decisions", least=Role.USER, content_key=True)
    def record(self, decision: Decision, tenant: str | None = None) -> Decision:
        """Record a decision that was made elsewhere, under a new id unless the token is for all tenants.

        Otherwise a refusal would tell a token of one tenant that another tenant has the id.
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
        measured: Annotated[Mapping[QuantityName, Measured], Field(min_length=1, max_length=100)],
        note: Annotated[str, Field(max_length=10_000)] = "",
        trusted: bool = False,
    ) -> Outcome:
        """Record what was measured after a decision (its id or a unique start of it).

        Quantities have the names of its estimates; they are in seconds, dollars and bytes. A `trusted`
        outcome counts in later recommendations however far it is from the estimate.
        """
        store, tenants = self.backend.store, self.principal.tenants
        made = json.loads(store.ledger.text(id, tenants))
        outcome = Outcome(made["id"], self.backend.clock.now(), dict(measured), note, trusted)

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
        """Update the models with a recorded outcome at once; returns newly found drift."""
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
    tries: int = 0


class OutcomeLearner:
    """Updates the models with outcomes of predictions in a thread of its own, so that no request waits."""

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque(maxlen=_QUEUE)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, store: Store, made: Mapping[str, Any], outcome: Outcome) -> None:
        """Queue the outcome of a decision, given as JSON with its tenant, until its transaction has ended."""
        with self._lock:
            self._pending.append(_Pending(made, outcome))
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, args=(store,), name="outcomes", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for the thread, before the store is closed; `trimtab models update` finds what is left."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, store: Store) -> None:
        while not self._closed.wait(_GATHER):
            with self._lock:
                taken = list(self._pending)
                self._pending.clear()
                if not taken:
                    self._thread = None
                    return
            try:
                self._note_all(store, taken)
            except TrimtabError as error:
                log.warning("the models are not updated with outcomes now: %s", error)
            except Exception:
                log.exception("the models are not updated with outcomes now")

    def _note_all(self, store: Store, taken: list[_Pending]) -> None:
        last: dict[str, tuple[int | None, float]] = {}
        for pending in taken:
            if pending.outcome in store.ledger.outcomes(pending.made["id"]):
                tenant = pending.made["tenant"]
                decision = from_plain(Decision, {k: v for k, v in pending.made.items() if k != "tenant"})
                last[tenant] = _note(store, decision, pending.outcome, tenant), pending.outcome.recorded
            elif pending.tries < _TRIES:
                pending.tries += 1
                with self._lock:
                    self._pending.append(pending)
        for tenant, (event, recorded) in last.items():
            _drift(store, event, tenant, recorded)


def _note(store: Store, decision: Decision, outcome: Outcome, tenant: str) -> int | None:
    from trimtab.predict import note_outcome

    return note_outcome(store, decision, outcome, tenant)


def _drift(store: Store, event: int | None, tenant: str, now: float) -> "tuple[DriftFinding, ...]":
    from trimtab.predict import Versions, drift_after

    return () if event is None else tuple(drift_after(store, event, Versions().since, now, tenant))


@dataclass(slots=True)
class DecisionCalibration:
    """Outcomes of one kind of decision and one quantity, counted.

    The measured value lay in `held` of the stated intervals, and a share `promised` of them should hold. Of
    the `duels`, in which rule and model both answered, the model was nearer `model_wins` times, the rule
    `rule_wins`.
    """

    kind: str
    quantity: str
    outcomes: int = 0
    held: int = 0
    promised: float = 0.0
    duels: int = 0
    model_wins: int = 0
    rule_wins: int = 0

    def add(self, made: Decision, comparison: Comparison) -> None:
        """Count one outcome; rule and model are compared if both answered about the same action."""
        self.promised = (self.promised * self.outcomes + comparison.estimate.coverage) / (self.outcomes + 1)
        self.outcomes += 1
        self.held += comparison.held
        by_rule = made.rule.estimates.get(self.quantity)
        by_model = made.model.estimates.get(self.quantity) if made.model is not None else None
        if by_rule is None or by_model is None or made.model is None or made.model.action != made.rule.action:
            return
        self.duels += 1
        off_rule, off_model = (abs(e.value - comparison.measured) for e in (by_rule, by_model))
        self.model_wins += off_model < off_rule
        self.rule_wins += off_rule < off_model


class CalibrationOperations(Area, name="calibration", scope="decisions"):
    """Calibration of the newest decisions that have an outcome."""

    __slots__ = ()

    @operation("GET", "/v1/decisions/calibration", slow=True)
    def by_kind(
        self,
        kind: ShortText = None,
        newest: Annotated[int, Field(ge=1, le=2000, description="Decisions to look at.")] = _CALIBRATED,
    ) -> tuple[DecisionCalibration, ...]:
        """Rule against model, and how often intervals held, over the newest decisions with outcomes."""
        ledger, tenants = self.backend.store.ledger, self.principal.tenants
        page = ledger.page(newest, DecisionFilter(kind, tenants=tenants))
        return calibrations((made, ledger.outcomes(made.id, tenants)) for made in page.items)


def calibrations(pairs: Iterable[tuple[Decision, tuple[Outcome, ...]]]) -> tuple[DecisionCalibration, ...]:
    """Calibration of decisions and their outcomes; the last outcome of a decision counts."""
    counts: dict[tuple[str, str], DecisionCalibration] = {}
    for made, outcomes in pairs:
        for comparison in compare(made, outcomes[-1]) if outcomes else ():
            key = (made.kind, comparison.quantity)
            counts.setdefault(key, DecisionCalibration(*key)).add(made, comparison)
    return tuple(count for _, count in sorted(counts.items()))
