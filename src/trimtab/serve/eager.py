"""A coroutine that does not have to wait is run at once; only one that does becomes a task."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
    """Run it until it waits; the task that does the rest of it, or None when there is no rest.

    Until then there is no current task, so it must not ask for one.
    """
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_rest(work, waits_for))


async def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _passed_on(work, waits_for)


@types.coroutine
def _passed_on(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    try:
        while True:
            try:
                told = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(told)
    except StopIteration:
        return
