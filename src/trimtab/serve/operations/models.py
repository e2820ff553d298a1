"""Models: versions of the weights that predictions come from, how they were tested, and drift."""

import threading
from dataclasses import dataclass
from typing import Any

from trimtab.core import BadInputError, TrimtabError
from trimtab.serve.operations.desk import Area
from trimtab.store import Role

AREA = "models"
_loading = threading.Lock()
_known: dict[tuple[str, str], "ModelVersion"] = {}


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version: since when there is one (None: it came with Trimtab), what it comes from, and its backtest.

    `errors` are mean errors on applications left out, by data set, by who answered and by known runs.
    `problem` is a sentence where it cannot be used.
    """

    name: str
    current: bool
    made: float | None
    parent: str
    outcomes: int
    comparisons: tuple[dict[str, Any], ...]
    errors: dict[str, dict[str, dict[str, float]]]
    problem: str = ""


class Models(Area):
    """Models concern everybody alike, and nothing in them tells of a tenant."""

    __slots__ = ()

    def list(self) -> tuple[ModelVersion, ...]:
        """Oldest first."""
        from trimtab.predict import Versions

        self.principal.require(AREA)
        versions = Versions()
        try:
            current = versions.current.name
        except TrimtabError:
            current = ""
        return tuple(_version(versions, name, name == current) for name in versions.names)

    def rollback(self, version: str | None = None) -> ModelVersion:
        """Let an earlier version answer again: the one named, else what the current one came from."""
        from trimtab.predict import Versions

        self.principal.require(AREA, "write", Role.OPERATOR, fleet=True)
        versions = Versions()

        def effect() -> str:
            with versions.alone():
                current = versions.current.name
                wanted = version or versions.before(current)
                if wanted == current:
                    raise BadInputError(f"{current} is the current version already")
                versions.make_current(wanted, self.desk.clock.now())
            return wanted

        name = self.written("models.rollback", "default", effect, lambda name: (name, {"version": name}))
        return _version(versions, name, True)


def _version(versions: Any, name: str, current: bool) -> ModelVersion:
    """What a version says of itself; read once, since its file never changes."""
    from dataclasses import replace

    key = (str(versions.folder), name)
    with _loading:
        if key not in _known:
            try:
                _known[key] = _read(versions.load(name), name)
            except TrimtabError as error:
                return ModelVersion(name, current, None, "", 0, (), {}, str(error))
    return replace(_known[key], current=current)


def _read(foundation: Any, name: str) -> ModelVersion:
    about = foundation.card.get("version", {})
    errors = {
        corpus: {who: {str(runs): error for runs, error in by.items()} for who, by in fitted.errors.items()}
        for corpus, fitted in foundation.predictors.items()
    }
    return ModelVersion(
        name,
        False,
        about.get("made"),
        str(about.get("parent", "")),
        len(about.get("outcomes", ())),
        tuple(dict(each) for each in about.get("comparisons", ())),
        errors,
    )
