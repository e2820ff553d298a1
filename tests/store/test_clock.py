"""A wall clock that is set a day ahead or back expires no token and forgets no reply."""

import time
from collections.abc import Callable

import pytest

from trimtab.kernel import SteadyClock
from trimtab.store import Reply, Role, open_store
from trimtab.store.clock import DatabaseClock

DAY = 86400.0


@pytest.fixture
def set_wall_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set this process's wall clock ahead by some seconds."""
    real = time.time
    return lambda ahead: monkeypatch.setattr(time, "time", lambda: real() + ahead)


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    real = SteadyClock.monotonic
    return lambda seconds: monkeypatch.setattr(SteadyClock, "monotonic", lambda clock: real(clock) + seconds)


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_setting_the_wall_clock_changes_no_process_that_shares_the_store(
    url: str, ahead: float, set_wall_clock: Callable[[float], None]
) -> None:
    with open_store(url) as before:
        shown = before.clock.now()
        assert abs(shown - time.time()) < 60.0
        set_wall_clock(ahead)
        with open_store(url) as later:
            assert shown <= before.clock.now() < shown + 60.0
            assert shown <= later.clock.now() < shown + 60.0


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_tokens_and_replies_last_as_long_as_they_should(
    url: str,
    ahead: float,
    set_wall_clock: Callable[[float], None],
    pass_time: Callable[[float], None],
) -> None:
    with open_store(url) as store:
        _, text = store.tokens.make("brief", "a", Role.VIEWER, lifetime=3600.0)
        store.replies.once("key", "ann", "POST", lambda: Reply(201, "first"))
    set_wall_clock(ahead)
    with open_store(url) as store:
        assert store.tokens.find(text) is not None
        assert store.replies.prune() == 0
        assert store.replies.once("key", "ann", "POST", lambda: Reply(201, "second")).body == "first"
    if url.startswith("sqlite"):  # a test cannot let PostgreSQL's clock go on
        pass_time(3601.0)
        with open_store(url) as store:
            assert store.tokens.find(text) is None
            assert store.replies.find("key", "ann", "POST") is not None
        pass_time(DAY + 1.0)
        with open_store(url) as store:
            assert store.replies.find("key", "ann", "POST") is None


def test_the_servers_clock_is_carried_on_while_it_does_not_answer(
    postgres, pass_time: Callable[[float], None]
) -> None:  # type: ignore[no-untyped-def]
    with open_store(postgres.new_database()) as store:
        clock = DatabaseClock(store._database)
        shown = clock.now()
        postgres.kill()
        try:
            pass_time(600.0)
            assert shown + 600.0 <= clock.now() < shown + 660.0
        finally:
            postgres.start()
