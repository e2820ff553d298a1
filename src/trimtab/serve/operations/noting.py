"""Outcomes of predictions, noted for the models to learn from: behind the answer, so that nobody waits."""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab.core import Decision, Outcome, TrimtabError, from_plain
from trimtab.store import Store

if TYPE_CHECKING:
    from trimtab.predict import Finding

PREDICTION = "predict"
"""The kind of decisions whose outcomes models learn from."""

log = logging.getLogger("trimtab.serve")

_GATHER = 0.25  # s in which outcomes gather, so that drift is looked for once for all of them
_LOOKS = 20  # for an outcome whose transaction has not ended yet
_MOST = 10_000  # that wait; `trimtab models update` finds those that no longer fit in the ledger


def note(store: Store, decision: Decision, outcome: Outcome, tenant: str) -> "tuple[Finding, ...]":
    """Note an outcome as an event of the decision's tenant; what it shows that was not known before."""
    return _looked(store, _noted(store, decision, outcome, tenant), tenant, outcome.recorded)


@dataclass(slots=True)
class _Waiting:
    made: Mapping[str, Any]
    outcome: Outcome
    looks: int = 0


class Noting:
    """Notes outcomes in a thread of its own, which is there as long as there are any."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque(maxlen=_MOST)
        self._lock = threading.Lock()
        self._works = False

    def add(self, store: Store, made: Mapping[str, Any], outcome: Outcome) -> None:
        """Note soon what happened after a decision, given as JSON with its tenant, if it is kept by then."""
        with self._lock:
            self._waiting.append(_Waiting(made, outcome))
            if self._works:
                return
            self._works = True
        threading.Thread(target=self._work, args=(store,), name="noting", daemon=True).start()

    def _work(self, store: Store) -> None:
        while True:
            time.sleep(_GATHER)
            with self._lock:
                taken = list(self._waiting)
                self._waiting.clear()
                if not taken:
                    self._works = False
                    return
            try:
                self._note_all(store, taken)
            except TrimtabError as error:
                log.warning("outcomes are not noted for the models now: %s", error)
            except Exception:
                log.exception("outcomes are not noted for the models now")

    def _note_all(self, store: Store, taken: list[_Waiting]) -> None:
        last: dict[str, tuple[int | None, float]] = {}
        for each in taken:
            if each.outcome in store.ledger.outcomes(each.made["id"]):
                tenant = each.made["tenant"]
                decision = from_plain(Decision, {k: v for k, v in each.made.items() if k != "tenant"})
                last[tenant] = _noted(store, decision, each.outcome, tenant), each.outcome.recorded
            elif each.looks < _LOOKS:
                each.looks += 1
                with self._lock:
                    self._waiting.append(each)
        for tenant, (event, recorded) in last.items():
            _looked(store, event, tenant, recorded)


def _noted(store: Store, decision: Decision, outcome: Outcome, tenant: str) -> int | None:
    from trimtab.predict import note_outcome

    return note_outcome(store, decision, outcome, tenant)


def _looked(store: Store, event: int | None, tenant: str, now: float) -> "tuple[Finding, ...]":
    from trimtab.predict import Versions, drift_after

    return () if event is None else tuple(drift_after(store, event, Versions().since, now, tenant))
