"""A coroutine that is run at once as far as it goes."""

import asyncio

import pytest

from trimtab.serve.eager import begin


def test_one_that_never_waits_is_over_at_once_and_needs_no_task() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append("done")

        assert begin(asyncio.get_running_loop(), work()) is None
        assert seen == ["done"]

    asyncio.run(main())


def test_one_that_waits_goes_on_as_a_task_from_where_it_was() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[object]()
        answer: asyncio.Future[str] = loop.create_future()

        async def work() -> None:
            seen.append("begun")
            seen.append(await answer)
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await loop.create_future()
            seen.append("over")

        task = begin(loop, work())
        assert task is not None
        assert seen == ["begun"]
        answer.set_result("told")
        await task
        assert seen == ["begun", "told", "over"]

    asyncio.run(main())


def test_what_it_waits_for_may_fail_and_it_may_be_cancelled() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[str]()
        answer: asyncio.Future[None] = loop.create_future()

        async def work() -> None:
            try:
                await answer
            except ValueError:
                seen.append("failed")
            await asyncio.sleep(60)

        task = begin(loop, work())
        assert task is not None
        answer.set_exception(ValueError())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["failed"]

    asyncio.run(main())
