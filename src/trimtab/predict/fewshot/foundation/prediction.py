"""One call: what was run somewhere in, what it would take and cost elsewhere out, with ranges and reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import Clock, Contribution, Decision
from trimtab.predict.fewshot.foundation.attribution import Attribution
from trimtab.predict.fewshot.foundation.decision import (
    Line,
    all_priced,
    attribution,
    best_line,
    prediction_decision,
    prediction_lines,
)
from trimtab.predict.fewshot.foundation.guard import Guarded, guarded
from trimtab.predict.fewshot.foundation.model import Foundation, shipped_foundation
from trimtab.predict.fewshot.foundation.request import Request, make_request, read_request


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """An application under every configuration that was asked for, and those where it ran."""

    request: Request
    guarded: Guarded
    lines: tuple[Line, ...]  # where it ran first, then as asked
    _attribution: Attribution

    @property
    def application(self) -> str:
        return self.request.case.application

    @property
    def environment(self) -> str:
        return self.request.case.environment

    @property
    def chosen_by(self) -> str:
        """Who answers: "model" or "rule"."""
        return self.guarded.chosen_by

    @property
    def reason(self) -> str:
        """Why that one answers."""
        return self.guarded.reason

    @property
    def rule_name(self) -> str:
        """The rule that answers beside the model."""
        return self.guarded.rule_name

    @property
    def best(self) -> Line:
        """The cheapest, or the fastest where something has no price."""
        return best_line(self.lines)

    @property
    def best_is(self) -> str:
        """What the best is: "cheapest" or "fastest"."""
        return "cheapest" if all_priced(self.lines) else "fastest"

    @property
    def ordered(self) -> tuple[Line, ...]:
        """For reading: memory sizes from small to large, configurations from the best on."""
        if self.request.of_function:
            memory = self.request.case.setting("memory_bytes")
            return tuple(self.lines[row] for row in memory.argsort(kind="stable"))
        by_cost = all_priced(self.lines)
        return tuple(
            sorted(self.lines, key=lambda line: line.cost.value if by_cost and line.cost else line.time.value)
        )

    def at(self, where: str) -> Line:
        """One configuration, such as "1024MB"."""
        return self.lines[self.request.row_of(where)]

    def contributions(self, where: str) -> tuple[Contribution, ...]:
        """What the predicted seconds are made of: parts that add up to them; none where it was measured."""
        row = self.request.row_of(where)
        return () if self.lines[row].known else self._attribution.parts(row)

    def decision(self, clock: Clock | None = None) -> Decision:
        """The best configuration as a decision that a ledger can keep."""
        parts = self.contributions(self.best.configuration)
        return prediction_decision(self.request, self.guarded, self.lines, parts, clock)


def predict(
    told: Mapping[str, Any] | str | Path,
    at: str | Sequence[str] = "all",
    foundation: Foundation | None = None,
) -> Prediction:
    """Predict an application that ran one to three times under other sizes or configurations.

    `told` is a YAML or JSON file, or a mapping of the same form (a bare number is seconds or bytes). `at` are
    sizes or configurations, in a sequence or with commas between; "all" is every one that is known. Other
    weights than those that came along are a `foundation`. Nothing is written anywhere.
    """
    weights = foundation or shipped_foundation()
    wanted = at.split(",") if isinstance(at, str) else at
    places = [text.strip() for text in wanted if text.strip()]
    if isinstance(told, Mapping):
        request = make_request(told, places, weights)
    else:
        request = read_request(Path(told), places, weights)
    found = guarded(request.fitted, request.case, request.known)
    lines = tuple(prediction_lines(request, found, request.fitted.coverage))
    return Prediction(request, found, lines, attribution(request, found))
