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
from trimtab.resize.link.client import Line, LineError
from trimtab.resize.link.joining import Membership, issue
from trimtab.resize.link.server import Serving, serve
from trimtab.resize.link.wire import ROW, Ask, Join, Orders, Relief, Report

ANY = "127.0.0.1:0"
MIB = 2.0**20
POOL = Pool("shop", 2.0, 256 * MIB, (Selector("/*"),), withheld=0.5)


Story = Callable[[Serving], Coroutine[Any, Any, None]]


def _told(folder: Path, story: Story) -> None:
    """Run a controller, and the story in its loop, until the story ends."""

    async def tell(serving: Serving) -> None:
        try:
            await asyncio.wait_for(story(serving), 60)
        finally:
            serving.stop()

    told: list[asyncio.Task[None]] = []
    serve([POOL], lambda serving: told.append(asyncio.create_task(tell(serving))), folder, ANY, ANY)
    told[0].result()


def _member(serving: Serving, name: str) -> Membership:
    return issue(serving.authority, name, f"127.0.0.1:{serving.port}")


class Node:
    """One container, on a line of its own."""

    def __init__(self, line: Line, used: float) -> None:
        self.line, self.used, self.rows = line, used, np.zeros(1, ROW)

    async def turn(self, joins: tuple[Join, ...] = ()) -> Orders:
        """Report and do as the answer says."""
        limit = self.rows["cpus"][0] or self.used
        self.rows["used"], self.rows["throttled"] = min(self.used, limit), self.used > limit
        await self.line.say(Report(PERIOD, self.rows.copy(), joins))
        orders = await self.line.hear()
        assert isinstance(orders, Orders)
        for rows, name in (
            (orders.cpu_takes, "cpus"),
            (orders.cpu_gives, "cpus"),
            (orders.memory_gives, "memory"),
        ):
            self.rows[name][rows["slot"]] = rows["value"]
        return orders


def test_two_nodes_share_a_pool_and_memory_is_granted_between_periods(tmp_path: Path) -> None:
    async def story(controller: Serving) -> None:
        async with Line(_member(controller, "a")) as first, Line(_member(controller, "b")) as second:
            nodes = [Node(first, 5.0), Node(second, 0.1)]
            for node in nodes:
                welcome = await node.line.greet()
                assert welcome.pools == (POOL,)
            for turn in range(15):
                joins = () if turn else (Join(0, 0, "/x"),)
                await asyncio.gather(*(node.turn(joins) for node in nodes))
                assert sum(float(node.rows["cpus"][0]) for node in nodes) <= POOL.cpu + 1e-9
            assert nodes[0].rows["cpus"][0] > 1.5
            before = float(nodes[0].rows["memory"][0])
            start = time.monotonic()
            await first.say(Ask(0, before))
            relief = await first.hear()
            assert isinstance(relief, Relief)
            assert relief.memory is not None
            assert relief.memory > before
            assert time.monotonic() - start < 1.0  # a millisecond where nothing else runs
            names = {row.path: row for row in controller.status().rows}
            assert names.keys() == {"a:/x", "b:/x"}
            assert names["a:/x"].traps == 1
            assert len(controller.status(most=1).rows) == controller.status(most=1).hidden == 1

    _told(tmp_path, story)


def test_a_certificate_of_another_authority_is_not_heard(tmp_path: Path) -> None:
    async def greet(member: Membership) -> None:
        async with Line(member) as line:
            await line.greet()

    async def story(controller: Serving) -> None:
        theirs = issue(Authority(tmp_path / "stranger"), "a", f"127.0.0.1:{controller.port}")
        ours = controller.authority.certificate
        mixed = Membership("a", theirs.address, ours, theirs.certificate, theirs.key)
        for member in (theirs, mixed):
            with pytest.raises(LineError, match="cannot be reached"):
                await greet(member)
        await greet(_member(controller, "a"))

    _told(tmp_path, story)


def test_a_replaced_certificate_and_a_second_stream_are_told_so(tmp_path: Path) -> None:
    async def story(controller: Serving) -> None:
        former, latter = _member(controller, "a"), _member(controller, "a")
        async with Line(former) as line:
            with pytest.raises(LineError, match="replaced by another"):
                await line.greet()
        async with Line(latter) as first, Line(latter) as second:
            await first.greet()
            await second.greet()
            with pytest.raises(LineError, match="another stream"):
                await first.hear()
            await Node(second, 1.0).turn((Join(0, 0, "/x"),))

    _told(tmp_path, story)


@pytest.mark.parametrize(
    "nonsense", [b"", b"x" * 100, b"TTRM\1\2" + b"\1" * 60], ids=["empty", "text", "nearly"]
)
def test_nonsense_ends_one_stream_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, nonsense: bytes
) -> None:
    async def story(controller: Serving) -> None:
        async with Line(_member(controller, "good")) as good:
            await good.greet()
            node = Node(good, 1.0)
            await node.turn((Join(0, 0, "/x"),))
            bad = _member(controller, "bad")
            for _ in range(3):
                async with Line(bad) as line:
                    await line.greet()
                    await line._call.write(nonsense)
                    with pytest.raises(LineError, match="refuses: a message"):
                        await line.hear()
            await node.turn()

    with caplog.at_level(logging.WARNING):
        _told(tmp_path, story)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert len(said) == 1
    assert said[0].startswith("bad: a message")


def test_a_stream_without_hello_is_refused(tmp_path: Path) -> None:
    async def story(controller: Serving) -> None:
        async with Line(_member(controller, "a")) as line:
            line.post.session = 5
            await line.say(Ask(0, 1.0))
            with pytest.raises(LineError, match="refuses: a message belongs to another stream"):
                await line.hear()

    _told(tmp_path, story)


def test_a_controller_has_its_folder_and_its_port_to_itself(tmp_path: Path) -> None:
    async def story(controller: Serving) -> None:
        with pytest.raises(StorageError, match="runs already"):
            await asyncio.to_thread(serve, [POOL], lambda serving: None, tmp_path, ANY, ANY)

    _told(tmp_path, story)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StorageError, match="cannot listen"):
            serve([POOL], lambda serving: None, tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", ANY)


def test_a_jump_of_the_wall_clock_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[], float] = time.time

    async def story(controller: Serving) -> None:
        async with Line(_member(controller, "a")) as line:
            await line.greet()
            node = Node(line, 1.0)
            await node.turn((Join(0, 0, "/x"),))
            had = float(node.rows["cpus"][0])
            monkeypatch.setattr(time, "time", lambda: real() - 1e6)
            for _ in range(3):
                await node.turn()
            monkeypatch.setattr(time, "time", lambda: real() + 1e6)
            for _ in range(3):
                await node.turn()
            assert float(node.rows["cpus"][0]) == pytest.approx(had, rel=0.5)
            assert controller.server.fleet.roster.seats.keys() == {"a"}

    _told(tmp_path, story)
