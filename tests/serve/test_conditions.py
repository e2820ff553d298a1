"""Changes that name the state they are of."""

import pytest
from hypothesis import given, strategies as st

from trimtab.serve.conditions import matches, require_condition, require_match
from trimtab.serve.errors import ChangedError, ConditionMissingError
from trimtab.serve.http.answer import tag


@given(st.binary(), st.binary())
def test_a_tag_names_one_body_alone(one: bytes, other: bytes) -> None:
    assert matches(tag(one).decode(), tag(one))
    assert matches(tag(one).decode(), tag(other)) == (one == other)


@given(st.lists(st.binary(), max_size=5), st.binary())
def test_of_several_tags_one_has_to_be_it(others: list[bytes], body: bytes) -> None:
    listed = ", ".join(tag(each).decode() for each in others)
    assert matches(listed, tag(body)) == (body in others)
    assert matches(f"{listed}, W/{tag(body).decode()}", tag(body))


@given(st.text())
def test_nothing_is_there_to_match_where_nothing_is(condition: str) -> None:
    assert not matches(condition, None)
    with pytest.raises(ChangedError):
        require_match(condition, None)


def test_a_change_needs_a_condition_that_holds() -> None:
    now = tag(b"now")
    with pytest.raises(ConditionMissingError):
        require_condition(None, None, now)
    with pytest.raises(ChangedError):
        require_condition(tag(b"then").decode(), None, now)
    with pytest.raises(ChangedError):
        require_condition(None, "*", now)
    require_condition(None, "*", None)
    require_condition(now.decode(), None, now)
