"""Errors and values as they travel: problem+json (RFC 9457), JSON within its grammar, and entity tags."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    NotFoundError,
    StorageError,
    TrimtabError,
    to_plain,
    within_grammar,
)
from trimtab.serve.access import ChangedError, ConditionMissingError, ForbiddenError, UnknownCallerError
from trimtab.store import NotAllowedError, OutdatedError, ReusedKeyError

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:trimtab:"
_STORE_FAILED = "the store cannot be used now; try again in a moment"

_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=sorted).encode
_lax = json.JSONEncoder(separators=(",", ":"), default=sorted).encode


def encoded(value: Any) -> bytes:
    """JSON of plain data or of the vocabulary; infinity is 1e999, NaN null, a set a sorted list."""
    plain = to_plain(value)
    try:
        return _strict(plain).encode()
    except ValueError:
        return within_grammar(_lax(plain), nan="null").encode()


def entity_tag(body: bytes) -> bytes:
    """Strong ETag of a body."""
    return b'"' + hashlib.blake2b(body, digest_size=12).hexdigest().encode() + b'"'


def tag_matches(condition: str, current: bytes | None) -> bool:
    """Whether an If-Match or If-None-Match header names the current tag; None: there is no resource."""
    if current is None:
        return False
    tags = [each.strip().removeprefix("W/") for each in condition.split(",")]
    return "*" in tags or current.decode() in tags


def require_condition(
    if_match: str | None, if_none_match: str | None, current: bytes | None, needed: bool = True
) -> None:
    """Raise unless the conditions hold for the current tag, or where one is `needed` and none is given."""
    if if_match is None and if_none_match is None and needed:
        raise ConditionMissingError("say If-Match with the ETag you read, or If-None-Match: * to make one")
    if if_match is not None and not tag_matches(if_match, current):
        raise ChangedError("it is not as you saw it any more; read it again")
    if if_none_match is not None and tag_matches(if_none_match, current):
        raise ChangedError("there is one already; read it, and say If-Match")


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
    500: ("failed", "An error of ours"),
    503: ("not-ready", "Not ready"),
}


def problem_of(error: TrimtabError, instance: str = "") -> Problem:
    """Problem that a caller sees; it tells neither where the store is nor why it failed."""
    if isinstance(error, HttpError):
        return plain_problem(error.status, str(error), instance)
    name, status, title = next((n, s, t) for kind, n, s, t in _KINDS if isinstance(error, kind))
    errors = error.errors if isinstance(error, InvalidError) else ()
    detail = _STORE_FAILED if name == "store-failed" else str(error)
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
