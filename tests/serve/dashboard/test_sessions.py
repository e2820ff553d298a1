"""Who is signed in, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.core import SimulatedClock, TrimtabError
from trimtab.serve.access import LOCAL, Access
from trimtab.serve.dashboard.sessions import AT_THE_MACHINE, COOKIE, LASTS, SignInSessions, session_cookie
from trimtab.store import Role, Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        yield opened


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(1_800_000_000.0)


@pytest.fixture
def sessions(store: Store, clock: SimulatedClock) -> SignInSessions:
    return SignInSessions(Access(store, clock=clock), clock)


def test_until_there_is_a_token_who_is_at_the_machine_needs_none(
    store: Store, sessions: SignInSessions, clock: SimulatedClock
) -> None:
    assert sessions.find("", here=True) == AT_THE_MACHINE
    assert sessions.find("", here=False) is None
    assert sessions.holder(AT_THE_MACHINE) is LOCAL
    store.tokens.make("first", "*", Role.ADMIN, ("*",))
    clock.sleep(2.0)
    assert sessions.find("", here=True) is None
    with pytest.raises(TrimtabError, match="sign in"):
        sessions.holder(AT_THE_MACHINE)


def test_a_session_ends_with_its_token(store: Store, sessions: SignInSessions, clock: SimulatedClock) -> None:
    token, text = store.tokens.make("one", "red", Role.USER, ("*",))
    name = sessions.begin(text)
    assert sessions.find(f"other=1; {COOKIE}={name}", here=False) == name
    assert sessions.holder(name).tenants == ("red",)
    store.tokens.revoke(token.id, None)
    clock.sleep(2.0)
    assert not sessions.open(name)
    assert sessions.find(f"{COOKIE}={name}", here=False) is None


def test_a_session_is_over_after_a_day_of_work_and_when_it_is_ended(
    store: Store, sessions: SignInSessions, clock: SimulatedClock
) -> None:
    _, text = store.tokens.make("one", "red", Role.USER, ("*",))
    first, second = sessions.begin(text), sessions.begin(text)
    assert first != second
    sessions.end(first)
    assert not sessions.open(first)
    assert sessions.open(second)
    clock.sleep(LASTS + 1.0)
    assert not sessions.open(second)


@pytest.mark.parametrize("cookies", [f"{COOKIE}=guessed", "not; a=cookie=;;", "\x00", f"{COOKIE}=", ""])
def test_what_no_session_is_called_opens_nothing(
    store: Store, sessions: SignInSessions, cookies: str
) -> None:
    store.tokens.make("one", "red", Role.USER, ("*",))
    assert not sessions.open(sessions.find(cookies, here=True))


def test_a_wrong_token_begins_no_session(store: Store, sessions: SignInSessions) -> None:
    store.tokens.make("one", "red", Role.USER, ("*",))
    with pytest.raises(TrimtabError, match="token"):
        sessions.begin("tt_wrong")


def test_scripts_and_other_sites_never_get_the_cookie_and_with_tls_it_needs_tls() -> None:
    assert session_cookie("name", secure=True) == f"{COOKIE}=name; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert "Secure" not in session_cookie("name", secure=False)
    assert "Max-Age=0" in session_cookie("", secure=False)
