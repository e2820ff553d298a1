"""Errors over HTTP: problem+json (RFC 9457), entity tags and conditions."""

import hashlib
from dataclasses import dataclass
from typing import Any

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
)
from trimtab.serve.access import ChangedError, ConditionMissingError, ForbiddenError, UnknownCallerError
from trimtab.store import DamagedError, FullError, OutdatedError, ReusedKeyError, StateConflictError

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:trimtab:"
_STORE_FAILED = {
    "store-full": "the disk that holds the store is full, and nothing was kept; free some space",
    "store-damaged": "the store is damaged; an operator has to restore it from a backup",
    "store-failed": "the store cannot be used now; try again in a moment",
}


def entity_tag(body: bytes) -> bytes:
    return b'"' + hashlib.blake2b(body, digest_size=12).hexdigest().encode() + b'"'


def tag_matches(condition: str, current: bytes | None) -> bool:
    """Whether an If-Match or If-None-Match header names the current tag; None: there is no resource."""
    if current is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in condition.split(",")]
    return "*" in tags or current.decode() in tags


def require_condition(
    if_match: str | None, if_none_match: str | None, current: bytes | None, needed: bool = True
) -> None:
    """Raise unless the conditions hold for the current tag.

    A change of what is there also raises if a condition is `needed` and none is given.
    """
    if if_match is None and if_none_match is None and needed and current is not None:
        raise ConditionMissingError("it is there already; send If-Match with the ETag you read")
    if if_match is not None and not tag_matches(if_match, current):
        raise ChangedError("it has changed since you read it; read it again")
    if if_none_match is not None and tag_matches(if_none_match, current):
        raise ChangedError("there is one already; read it, and send If-Match with its ETag")


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
    """An error of the protocol itself, by its HTTP status."""

    def __init__(self, status: int, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers


class InvalidError(BadInputError):
    """Parts of a request are not as its schema says; `errors` names each."""

    def __init__(self, detail: str, errors: tuple[dict[str, Any], ...]) -> None:
        super().__init__(detail)
        self.errors = errors


# The first class that fits an error gives its name.
_KINDS: tuple[tuple[type[TrimtabError], str, int, str], ...] = (
    (UnknownCallerError, "unknown-caller", 401, "Unknown caller"),
    (ForbiddenError, "forbidden", 403, "Not allowed"),
    (NotFoundError, "not-found", 404, "Not found"),
    (OutdatedError, "outdated", 409, "Changed meanwhile"),
    (ChangedError, "changed", 412, "Changed since it was read"),
    (ReusedKeyError, "reused-key", 409, "The key belongs to another request"),
    (StateConflictError, "conflict", 409, "Contradicts the present state"),
    (ConditionMissingError, "condition-missing", 428, "A condition is needed"),
    (MissingDependencyError, "missing-dependency", 501, "Not installed"),
    (FullError, "store-full", 503, "The disk is full"),
    (DamagedError, "store-damaged", 503, "The store is damaged"),
    (StorageError, "store-failed", 503, "The store failed"),
    (BadInputError, "bad-input", 422, "The request cannot be used"),
    (TrimtabError, "refused", 422, "The request cannot be carried out"),
)
_BY_STATUS = {
    400: ("not-http", "The request cannot be read"),
    404: ("not-found", "Not found"),
    405: ("no-such-method", "No such method here"),
    406: ("not-acceptable", "No acceptable format"),
    408: ("too-slow", "Too slow"),
    410: ("gone", "No longer there"),
    413: ("too-large", "Too large"),
    415: ("not-json", "Not JSON"),
    429: ("too-many", "Too many requests"),
    500: ("failed", "A bug"),
    503: ("not-ready", "Not ready"),
}


def problem_of(error: TrimtabError, instance: str = "") -> Problem:
    """Problem that a caller sees; it does not tell where the store is."""
    if isinstance(error, HttpError):
        return plain_problem(error.status, str(error), instance)
    name, status, title = next((n, s, t) for kind, n, s, t in _KINDS if isinstance(error, kind))
    errors = error.errors if isinstance(error, InvalidError) else ()
    detail = _STORE_FAILED.get(name, str(error))
    return Problem(_PREFIX + name, title, status, detail, instance, errors)


def plain_problem(status: int, detail: str, instance: str = "") -> Problem:
    """Problem for an HTTP status alone."""
    name, title = _BY_STATUS.get(status, (f"status-{status}", "Refused"))
    return Problem(_PREFIX + name, title, status, detail, instance)


def error_of(problem: Problem) -> TrimtabError:
    """The error that the server raised, for the client to raise again."""
    name = problem.type.removeprefix(_PREFIX)
    kind = next((kind for kind, known, _, _ in _KINDS if known == name), None)
    return kind(problem.detail) if kind is not None else HttpError(problem.status, problem.detail)
