"""Errors survive the way over the wire."""

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError, NotFoundError, StorageError, TrimtabError
from trimtab.serve.access import ChangedError, ConditionMissingError, ForbiddenError, UnknownCallerError
from trimtab.serve.problems import (
    HttpError,
    entity_tag,
    error_of,
    problem_of,
    require_condition,
    tag_matches,
)
from trimtab.store import OutdatedError, ReusedKeyError, StateConflictError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownCallerError("who?"), 401),
        (ForbiddenError("no"), 403),
        (NotFoundError("gone"), 404),
        (OutdatedError("too late"), 409),
        (ChangedError("other"), 412),
        (BadInputError("wrong"), 422),
        (ReusedKeyError("used"), 409),
        (StateConflictError("taken"), 409),
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


@given(st.binary(), st.binary())
def test_a_tag_names_one_body_alone(one: bytes, other: bytes) -> None:
    assert tag_matches(entity_tag(one).decode(), entity_tag(one))
    assert tag_matches(entity_tag(one).decode(), entity_tag(other)) == (one == other)


@given(st.lists(st.binary(), max_size=5), st.binary())
def test_of_several_tags_one_has_to_be_it(others: list[bytes], body: bytes) -> None:
    listed = ", ".join(entity_tag(item).decode() for item in others)
    assert tag_matches(listed, entity_tag(body)) == (body in others)
    assert tag_matches(f"{listed}, W/{entity_tag(body).decode()}", entity_tag(body))


@given(st.text())
def test_nothing_is_there_to_match_where_nothing_is(condition: str) -> None:
    assert not tag_matches(condition, None)
    with pytest.raises(ChangedError):
        require_condition(condition, None, None)


def test_a_change_needs_a_condition_that_holds() -> None:
    now = entity_tag(b"now")
    with pytest.raises(ConditionMissingError):
        require_condition(None, None, now)
    with pytest.raises(ChangedError):
        require_condition(entity_tag(b"then").decode(), None, now)
    with pytest.raises(ChangedError):
        require_condition(None, "*", now)
    require_condition(None, "*", None)
    require_condition(None, None, None)
    require_condition(now.decode(), None, now)
