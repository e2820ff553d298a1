"""A data set's predictor that also knows, by the shared encoder, what an application is like."""

from dataclasses import dataclass, fields

from trimtab.predict.fewshot import Case, FittedOurs, Rows
from trimtab.predict.fewshot.encoder import Acquaintance, Shared


@dataclass(frozen=True, slots=True, eq=False)
class Acquainted(FittedOurs):
    """The blend, with the encoder that all data sets share."""

    shared: Shared | None = None

    @classmethod
    def of(cls, fitted: FittedOurs, shared: Shared | None) -> "Acquainted":
        own = {field.name: getattr(fitted, field.name) for field in fields(FittedOurs)}
        return cls(**own, shared=shared)

    def acquaintance(self, case: Case, known: Rows) -> Acquaintance | None:
        """How well something like it is known; nothing where the encoder never saw such a data set."""
        if self.shared is None or case.corpus not in self.shared.neighbourhood.unseen:
            return None
        return self.shared.acquaintance(case, known)
