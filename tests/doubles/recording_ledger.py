"""A ledger that keeps decisions and outcomes in memory."""

from collections.abc import Mapping

from trimtab.core import Decision, Outcome


class RecordingLedger:
    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.outcomes: list[Outcome] = []

    def record(self, decision: Decision) -> Decision:
        self.decisions.append(decision)
        return decision

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str) -> None:
        self.outcomes.append(Outcome(id, 0.0, dict(measured), note))
