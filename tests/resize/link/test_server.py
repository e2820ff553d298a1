"""Real streams with real TLS: nodes are sized together, and who should not be heard is not."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from trimtab.core import StorageError
from trimtab.resize import PERIOD, Pool, Selector
from trimtab.resize.link import (
    ROW,
    Ask,
    Authority,
    Join,
    Line,
    LineError,
    Membership,
    Orders,
    Relief,
    Report,
    Serving,
    issue,
    serve,
)

MIB = 2.0**20
POOL = Pool("shop", 2.0, 256 * MIB, (Selector("/*"),), withheld=0.5)


@contextlib.contextmanager
def running(folder: Path, **more: object) -> Iterator[Serving]:
    """A controller in a thread."""
    up = threading.Event()
    found: list[Serving] = []

    def ready(serving: Serving) -> None:
        found.append(serving)
        up.set()

    options = {"listen": "127.0.0.1:0", "join": "127.0.0.1:0", **more}
    thread = threading.Thread(target=serve, args=([POOL], ready, folder), kwargs=options)
    thread.start()
    try:
        assert up.wait(10)
        yield found[0]
    finally:
        found[0].stop()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Serving]:
    with running(tmp_path / "controller") as serving:
        yield serving


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


def test_two_nodes_share_a_pool_and_memory_is_granted_between_periods(controller: Serving) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_a_certificate_of_another_authority_is_not_heard(controller: Serving, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    theirs = issue(stranger, "a", f"127.0.0.1:{controller.port}")
    mixed = Membership("a", theirs.address, controller.authority.certificate, theirs.certificate, theirs.key)

    async def greet(member: Membership) -> None:
        async with Line(member) as line:
            await line.greet()

    for member in (theirs, mixed):
        with pytest.raises(LineError, match="cannot be reached"):
            asyncio.run(greet(member))
    asyncio.run(greet(_member(controller, "a")))


def test_a_replaced_certificate_and_a_second_stream_are_told_so(controller: Serving) -> None:
    async def story() -> None:
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

    asyncio.run(story())


@pytest.mark.parametrize(
    "nonsense", [b"", b"x" * 100, b"TTRM\1\2" + b"\1" * 60], ids=["empty", "text", "nearly"]
)
def test_nonsense_ends_one_stream_and_is_logged_once(
    controller: Serving, caplog: pytest.LogCaptureFixture, nonsense: bytes
) -> None:
    async def story() -> None:
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
        asyncio.run(story())
    said = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert len(said) == 1
    assert said[0].startswith("bad: a message")


def test_a_stream_without_hello_is_refused(controller: Serving) -> None:
    async def story() -> None:
        async with Line(_member(controller, "a")) as line:
            line.post.session = 5
            await line.say(Ask(0, 1.0))
            with pytest.raises(LineError, match="refuses: a message belongs to another stream"):
                await line.hear()

    asyncio.run(story())


def test_a_controller_has_its_folder_and_its_port_to_itself(controller: Serving, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="runs already"):
        serve([POOL], lambda serving: None, tmp_path / "controller", "127.0.0.1:0", "127.0.0.1:0")
    with pytest.raises(StorageError, match="cannot listen"):
        serve([POOL], lambda serving: None, tmp_path / "other", f"127.0.0.1:{controller.port}", "127.0.0.1:0")


def test_a_jump_of_the_wall_clock_changes_nothing(
    controller: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[], float] = time.time

    async def story() -> None:
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
            assert controller.server.fleet.seats.keys() == {"a"}

    asyncio.run(story())
