"""Errors as they travel (RFC 9457): one sentence, under a name that programs can tell apart."""

from dataclasses import dataclass
from typing import Any

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
)
from trimtab.serve.errors import ChangedError, ConditionMissingError, ForbiddenError, UnknownCallerError
from trimtab.store import NotAllowedError, OutdatedError, ReusedKeyError

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:trimtab:"
_STORE_FAILED = "the store cannot be used now; try again in a moment"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: `type` names its kind, `status` is HTTP's, `detail` is the sentence.

    `instance` is the request's id, which the log has too; `errors` say which parts of a request are wrong.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    errors: tuple[dict[str, Any], ...] = ()


class HttpError(TrimtabError):
    """Something that only HTTP can get wrong, by its status."""

    def __init__(self, status: int, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers


class InvalidError(BadInputError):
    """Parts of a request are not as its schema says; `errors` names each."""

    def __init__(self, detail: str, errors: tuple[dict[str, Any], ...]) -> None:
        super().__init__(detail)
        self.errors = errors


# The first that fits an error is what it is called.
_KINDS: tuple[tuple[type[TrimtabError], str, int, str], ...] = (
    (UnknownCallerError, "unknown-caller", 401, "Who asks is not known"),
    (ForbiddenError, "forbidden", 403, "Not allowed"),
    (NotAllowedError, "forbidden", 403, "Not allowed"),
    (NotFoundError, "not-found", 404, "Not found"),
    (OutdatedError, "outdated", 409, "Changed by somebody else"),
    (ChangedError, "changed", 412, "Changed since it was read"),
    (ReusedKeyError, "reused-key", 422, "The key belongs to another request"),
    (ConditionMissingError, "condition-missing", 428, "A condition is needed"),
    (MissingDependencyError, "missing-dependency", 501, "Not installed"),
    (StorageError, "store-failed", 503, "The store failed"),
    (BadInputError, "bad-input", 422, "The request cannot be used"),
    (TrimtabError, "refused", 422, "The request cannot be carried out"),
)
_BY_STATUS = {
    400: ("not-http", "The request cannot be read"),
    404: ("not-found", "Not found"),
    405: ("no-such-method", "No such method here"),
    406: ("not-acceptable", "Nothing that you accept"),
    408: ("too-slow", "Too slow"),
    413: ("too-large", "Too large"),
    415: ("not-json", "Not JSON"),
    429: ("too-many", "Too many requests"),
    431: ("too-large", "Too large"),
    500: ("failed", "An error of ours"),
    503: ("not-ready", "Not ready"),
}


def problem_of(error: TrimtabError, instance: str = "") -> Problem:
    """What a caller is told about an error; nothing of where the store is, or why it failed."""
    if isinstance(error, HttpError):
        return plain_problem(error.status, str(error), instance)
    name, status, title = next((n, s, t) for kind, n, s, t in _KINDS if isinstance(error, kind))
    errors = error.errors if isinstance(error, InvalidError) else ()
    detail = _STORE_FAILED if name == "store-failed" else str(error)
    return Problem(_PREFIX + name, title, status, detail, instance, errors)


def plain_problem(status: int, detail: str, instance: str = "") -> Problem:
    """The same for a status alone."""
    name, title = _BY_STATUS.get(status, (f"status-{status}", "Refused"))
    return Problem(_PREFIX + name, title, status, detail, instance)


def error_of(problem: Problem) -> TrimtabError:
    """What a caller raises about a problem: the error that the other side had."""
    name = problem.type.removeprefix(_PREFIX)
    kind = next((kind for kind, known, _, _ in _KINDS if known == name), None)
    return kind(problem.detail) if kind is not None else HttpError(problem.status, problem.detail)
