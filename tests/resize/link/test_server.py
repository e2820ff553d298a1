"""Real streams with real TLS: nodes are sized together, and who should not be heard is not."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import StorageError
from trimtab.resize import PERIOD, Pool, Selector
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.client import ControllerStream, StreamError
from trimtab.resize.link.joining import Membership, issue
from trimtab.resize.link.server import RunningController, serve
from trimtab.resize.link.wire import ROW, Join, MemoryGrant, MemoryRequest, Orders, Report

ANY = "127.0.0.1:0"
MIB = 2.0**20
POOL = Pool("shop", 2.0, 256 * MIB, (Selector("/*"),), withheld=0.5)


Story = Callable[[RunningController], Coroutine[Any, Any, None]]


def _told(folder: Path, story: Story) -> None:
    """Run a controller, and the story in its loop, until the story ends."""

    async def tell(serving: RunningController) -> None:
        try:
            await asyncio.wait_for(story(serving), 60)
        finally:
            serving.stop()

    told: list[asyncio.Task[None]] = []
    serve([POOL], lambda serving: told.append(asyncio.create_task(tell(serving))), folder, ANY, ANY)
    told[0].result()


def _member(serving: RunningController, name: str) -> Membership:
    return issue(serving.authority, name, f"127.0.0.1:{serving.port}")


class PlayedNode:
    """One container, on a line of its own."""

    def __init__(self, line: ControllerStream, used: float) -> None:
        self.line, self.used, self.rows = line, used, np.zeros(1, ROW)

    async def turn(self, joins: tuple[Join, ...] = ()) -> Orders:
        """Report and do as the answer says."""
        limit = self.rows["cpus"][0] or self.used
        self.rows["used"], self.rows["throttled"] = min(self.used, limit), self.used > limit
        await self.line.send(Report(PERIOD, self.rows.copy(), joins))
        orders = await self.line.receive()
        assert isinstance(orders, Orders)
        for rows, name in (
            (orders.cpu_takes, "cpus"),
            (orders.cpu_gives, "cpus"),
            (orders.memory_gives, "memory"),
        ):
            self.rows[name][rows["slot"]] = rows["value"]
        return orders


def test_two_nodes_share_a_pool_and_memory_is_granted_between_periods(tmp_path: Path) -> None:
    async def story(controller: RunningController) -> None:
        async with (
            ControllerStream(_member(controller, "a")) as first,
            ControllerStream(_member(controller, "b")) as second,
        ):
            nodes = [PlayedNode(first, 5.0), PlayedNode(second, 0.1)]
            for node in nodes:
                welcome = await node.line.greet()
                assert welcome.pools == (POOL,)
            for turn in range(15):
                joins = () if turn else (Join(0, 0, "/x"),)
                await asyncio.gather(*(node.turn(joins) for node in nodes))
                assert sum(float(node.rows["cpus"][0]) for node in nodes) <= POOL.cpu + 1e-9
            assert nodes[0].rows["cpus"][0] > 1.5
            before = float(nodes[0].rows["memory"][0])
            await first.send(MemoryRequest(0, before))
            relief = await first.receive()
            assert isinstance(relief, MemoryGrant)
            assert relief.memory is not None
            assert relief.memory > before
            names = {row.path: row for row in controller.status().rows}
            assert names.keys() == {"a:/x", "b:/x"}
            assert names["a:/x"].traps == 1
            assert len(controller.status(most=1).rows) == controller.status(most=1).hidden == 1

    _told(tmp_path, story)


def test_a_certificate_of_another_authority_is_not_heard(tmp_path: Path) -> None:
    async def greet(member: Membership) -> None:
        async with ControllerStream(member) as line:
            await line.greet()

    async def story(controller: RunningController) -> None:
        theirs = issue(Authority(tmp_path / "stranger"), "a", f"127.0.0.1:{controller.port}")
        ours = controller.authority.certificate
        mixed = Membership("a", theirs.address, ours, theirs.certificate, theirs.key)
        for member in (theirs, mixed):
            with pytest.raises(StreamError, match=r"127\.0\.0\.1"):
                await greet(member)
        await greet(_member(controller, "a"))

    _told(tmp_path, story)


def test_a_replaced_certificate_and_a_second_stream_are_told_so(tmp_path: Path) -> None:
    async def story(controller: RunningController) -> None:
        former, latter = _member(controller, "a"), _member(controller, "a")
        async with ControllerStream(former) as line:
            with pytest.raises(StreamError, match="certificate"):
                await line.greet()
        async with ControllerStream(latter) as first, ControllerStream(latter) as second:
            await first.greet()
            await second.greet()
            with pytest.raises(StreamError, match="stream"):
                await first.receive()
            await PlayedNode(second, 1.0).turn((Join(0, 0, "/x"),))

    _told(tmp_path, story)


@pytest.mark.parametrize(
    "nonsense", [b"", b"x" * 100, b"TTRM\1\2" + b"\1" * 60], ids=["empty", "text", "nearly"]
)
def test_nonsense_ends_one_stream_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, nonsense: bytes
) -> None:
    async def story(controller: RunningController) -> None:
        async with ControllerStream(_member(controller, "good")) as good:
            await good.greet()
            node = PlayedNode(good, 1.0)
            await node.turn((Join(0, 0, "/x"),))
            bad = _member(controller, "bad")
            for _ in range(3):
                async with ControllerStream(bad) as line:
                    await line.greet()
                    await line._call.write(nonsense)
                    with pytest.raises(StreamError, match="a message"):
                        await line.receive()
            await node.turn()

    with caplog.at_level(logging.WARNING):
        _told(tmp_path, story)
    message_count = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert len(message_count) == 1
    assert message_count[0].startswith("bad: a message")


def test_a_stream_without_hello_is_refused(tmp_path: Path) -> None:
    async def story(controller: RunningController) -> None:
        async with ControllerStream(_member(controller, "a")) as line:
            line.messages.session = 5
            await line.send(MemoryRequest(0, 1.0))
            with pytest.raises(StreamError, match="stream"):
                await line.receive()

    _told(tmp_path, story)


def test_a_controller_has_its_folder_and_its_port_to_itself(tmp_path: Path) -> None:
    async def story(controller: RunningController) -> None:
        with pytest.raises(StorageError, match="controller"):
            await asyncio.to_thread(serve, [POOL], lambda serving: None, tmp_path, ANY, ANY)

    _told(tmp_path, story)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StorageError, match="listen"):
            serve([POOL], lambda serving: None, tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", ANY)


def test_a_jump_of_the_wall_clock_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[], float] = time.time

    async def story(controller: RunningController) -> None:
        async with ControllerStream(_member(controller, "a")) as line:
            await line.greet()
            node = PlayedNode(line, 1.0)
            await node.turn((Join(0, 0, "/x"),))
            had = float(node.rows["cpus"][0])
            monkeypatch.setattr(time, "time", lambda: real() - 1e6)
            for _ in range(3):
                await node.turn()
            monkeypatch.setattr(time, "time", lambda: real() + 1e6)
            for _ in range(3):
                await node.turn()
            assert float(node.rows["cpus"][0]) == pytest.approx(had, rel=0.5)
            assert controller.server.fleet.registry.sessions.keys() == {"a"}

    _told(tmp_path, story)
