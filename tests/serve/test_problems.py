"""Errors survive the way over the wire."""

import pytest

from trimtab.core import BadInputError, NotFoundError, StorageError, TrimtabError
from trimtab.serve.errors import ChangedError, ConditionMissingError, ForbiddenError, UnknownCallerError
from trimtab.serve.problems import HttpError, error_of, problem_of
from trimtab.store import OutdatedError, ReusedKeyError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownCallerError("who?"), 401),
        (ForbiddenError("no"), 403),
        (NotFoundError("gone"), 404),
        (OutdatedError("too late"), 409),
        (ChangedError("other"), 412),
        (BadInputError("wrong"), 422),
        (ReusedKeyError("used"), 422),
        (ConditionMissingError("which?"), 428),
        (TrimtabError("refused"), 422),
    ],
)
def test_who_is_told_of_an_error_raises_the_same(error: TrimtabError, status: int) -> None:
    problem = problem_of(error, "r1")
    assert (problem.status, problem.detail, problem.instance) == (status, str(error), "r1")
    again = error_of(problem)
    assert (type(again), str(again)) == (type(error), str(error))


def test_where_the_store_is_and_why_it_failed_is_nobodys_business() -> None:
    problem = problem_of(StorageError("the store /var/lib/secret.sqlite is damaged"))
    assert problem.status == 503
    assert "secret" not in problem.detail


def test_what_only_http_gets_wrong_keeps_its_status() -> None:
    again = error_of(problem_of(HttpError(429, "too many")))
    assert isinstance(again, HttpError)
    assert again.status == 429
