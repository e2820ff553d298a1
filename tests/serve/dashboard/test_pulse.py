"""Many who look cost the store as much as one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trimtab.core import SimulatedClock, TrimtabError
from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.dashboard.visit import Pulse, ResultCache
from trimtab.serve.http.stream import Hub
from trimtab.store import Role, Token, open_store


def apart(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs it in a thread of its own, since the browser's driver holds this one's loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result(60)


def test_an_answer_is_shared_until_something_happens_or_it_is_old() -> None:
    clock, calls = SimulatedClock(0.0), []

    async def ask() -> int:
        calls.append(1)
        return len(calls)

    async def look() -> list[int]:
        kept = ResultCache(clock)
        observed = [await kept.get("jobs", 1, 5.0, ask) for _ in range(500)]
        observed.append(await kept.get("jobs of another", 1, 5.0, ask))
        observed.append(await kept.get("jobs", 2, 5.0, ask))
        clock.sleep(6.0)
        observed.append(await kept.get("jobs", 2, 5.0, ask))
        return observed

    assert apart(look()) == [1] * 500 + [2, 3, 4]


def test_who_ask_at_once_put_one_question_and_a_failure_is_not_kept() -> None:
    calls: list[int] = []

    async def slow() -> int:
        calls.append(1)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise TrimtabError("the store is away")
        return 7

    async def look() -> tuple[list[Any], list[Any]]:
        kept = ResultCache()
        at_once = [
            await asyncio.gather(
                *(kept.get("jobs", 1, 60.0, slow) for _ in range(100)), return_exceptions=True
            )
            for _ in range(2)
        ]
        return at_once[0], at_once[1]

    first, second = apart(look())
    assert {type(item) for item in first} == {TrimtabError}
    assert second == [7] * 100
    assert len(calls) == 2


def test_a_stamp_changes_with_what_somebody_may_see_and_with_nothing_else(tmp_path: Path) -> None:
    def holder(tenant: str) -> Principal:
        return Principal(Token("id", "name", tenant, Role.VIEWER, frozenset({"*"}), 0.0))

    async def look() -> list[int]:
        with open_store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            polls = 0

            async def ask(question: Any) -> Any:
                nonlocal polls
                polls += 1
                return question()

            hub, pulse = Hub(store, ask), Pulse()
            async with hub.running():
                following = asyncio.create_task(pulse.follow(hub))
                while not (polls and hub.listeners):
                    await asyncio.sleep(0.02)
                store.events.append("job.waiting", "a", {}, 1.0, "red")
                while not pulse.stamp(LOCAL, ("job",)):
                    await asyncio.sleep(0.02)
                observed = [pulse.stamp(who, ("job",)) for who in (LOCAL, holder("red"), holder("blue"))]
                observed.append(pulse.stamp(LOCAL, ("drift",)))
                following.cancel()
        return observed

    all_of_it, own, others, elsewhere = apart(look())
    assert all_of_it == own > 0
    assert (others, elsewhere) == (0, 0)
