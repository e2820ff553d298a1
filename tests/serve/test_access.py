"""Who asks: with a token, without one, with one that is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import SimulatedClock
from trimtab.serve.access import CACHE_SECONDS, LOCAL, Access, UnknownCallerError
from trimtab.store import Role, Store, Token, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder: Path = tmp_path_factory.mktemp("store")
    with open_store(f"sqlite:///{folder}/trimtab.sqlite") as made:
        yield made


def test_until_there_is_a_token_who_is_at_the_machine_needs_none_and_then_all_do(tmp_path: Path) -> None:
    clock = SimulatedClock(1000.0)
    with open_store(f"sqlite:///{tmp_path}/a.sqlite") as store:
        access = Access(store, clock=clock)
        assert access.caller(None, from_this_machine=True) is LOCAL
        with pytest.raises(UnknownCallerError):
            access.caller(None, from_this_machine=False)
        store.tokens.make("ci", "a", Role.VIEWER)
        clock.advance(CACHE_SECONDS)
        with pytest.raises(UnknownCallerError, match="--token-file"):
            access.caller(None, from_this_machine=True)


def test_who_always_wants_tokens_lets_nobody_in_without(store: Store) -> None:
    with pytest.raises(UnknownCallerError):
        Access(store, always=True).caller(None, from_this_machine=True)


def test_a_revoked_token_is_noticed_within_a_second(store: Store) -> None:
    clock = SimulatedClock(1000.0)
    access = Access(store, clock=clock)
    token, text = store.tokens.make("ci", "a", Role.USER)
    assert access.caller(f"Bearer {text}", from_this_machine=False).tenants == ("a",)
    store.tokens.revoke(token.id)
    clock.advance(CACHE_SECONDS)
    with pytest.raises(UnknownCallerError, match="token"):
        access.caller(f"Bearer {text}", from_this_machine=False)


def test_a_cached_token_is_refused_once_it_has_expired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock(1000.0)
    monkeypatch.setattr(store.tokens, "_clock", clock)
    _, text = store.tokens.make("short", "a", Role.USER, lifetime=1.0)
    access = Access(store, clock=clock)
    assert access.holder(text).token.name == "short"
    clock.advance(1.5)
    with pytest.raises(UnknownCallerError):
        access.holder(text)


@settings(max_examples=50)
@given(st.text(max_size=100))
def test_what_is_no_token_opens_nothing(store: Store, text: str) -> None:
    with pytest.raises(UnknownCallerError):
        Access(store, always=True).caller(f"Bearer {text}", from_this_machine=True)


def test_a_token_changed_in_one_character_opens_nothing(store: Store) -> None:
    access = Access(store)
    _, text = store.tokens.make("ci", "a", Role.USER)
    for place in range(len(text)):
        forged = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        with pytest.raises(UnknownCallerError):
            access.holder(forged)


def test_a_token_revoked_while_it_is_looked_up_is_not_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimulatedClock(1000.0)
    access = Access(store, clock=clock)
    token, text = store.tokens.make("ci", "a", Role.USER)
    find = store.tokens.find

    def overtaken(text: str) -> Token | None:
        found = find(text)
        store.tokens.revoke(token.id)
        clock.advance(CACHE_SECONDS)
        assert not access.open_here  # somebody else looks, and notices
        return found

    monkeypatch.setattr(store.tokens, "find", overtaken)
    access.holder(text)
    monkeypatch.undo()
    with pytest.raises(UnknownCallerError):
        access.holder(text)
