"""200 streams over servers that are killed at random: each sees every event once and in order."""

import asyncio
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from postgres_server import private_postgres

from trimtab.store import open_store

STREAMS = 200
EVENTS_OF_A_WRITER = 400
RESTARTS = 8
PATIENCE = 240.0  # s

SERVER = """
import sys, threading
from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import open_store

settings = Settings(listen=f"127.0.0.1:{sys.argv[2]}", dashboard=False, rate_limit=0.0)
with open_store(sys.argv[1]) as store, listening(HttpApplication(store, settings), settings):
    print("serving", flush=True)
    threading.Event().wait()
"""

# Two threads write single events and groups of them, which commit at other moments than they get their ids.
WRITER = """
import random, sys, threading, time
from trimtab.store import open_store

def write(seed):
    chance, left = random.Random(seed), int(sys.argv[2]) // 2
    while left:
        together = min(left, chance.choice((1, 1, 3)))
        with store.together():
            for _ in range(together):
                store.events.append("job.waiting", "x", {}, 1.0)
                time.sleep(chance.random() * 0.004)
        left -= together
        time.sleep(chance.random() * 0.03)

with open_store(sys.argv[1]) as store:
    threads = [threading.Thread(target=write, args=(f"{sys.argv[3]}-{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.sqlite"
        return
    with private_postgres() as server:
        yield server.new_database()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Servers:
    """Server processes of one store, each at a port of its own."""

    url: str
    ports: list[int]
    processes: dict[int, "subprocess.Popen[str]"] = field(default_factory=dict)

    def start(self, port: int) -> None:
        command = [sys.executable, "-c", SERVER, self.url, str(port)]
        self.processes[port] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def restart(self, port: int, how: signal.Signals) -> None:
        self.processes[port].send_signal(how)
        self.processes[port].wait()
        self.start(port)

    async def serving(self, port: int) -> None:
        output = self.processes[port].stdout
        assert output is not None
        assert await asyncio.to_thread(output.readline) == "serving\n"

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@dataclass
class Stream:
    """A client that connects again after its last id, whoever ended the connection."""

    ports: list[int]
    chance: random.Random
    start: int | None
    ids: list[int] = field(default_factory=list)
    connections: int = 0

    async def run(self) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._listen(self.chance.choice(self.ports))
            await asyncio.sleep(self.chance.random() * 0.1)

    async def _listen(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            last = self.ids[-1] if self.ids else self.start
            header = "" if last is None else f"Last-Event-ID: {last}\r\n"
            writer.write(f"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
            if b" 200 " not in await reader.readuntil(b"\r\n"):
                return
            self.connections += 1
            id, left = 0, self.chance.choice((10, 100, 10_000))
            while left:
                line = await reader.readuntil(b"\n")
                if match := re.fullmatch(rb"id: (\d+)\n", line):
                    id = int(match[1])
                    if self.start is None:
                        self.start = id
                elif line.startswith(b"data: "):
                    self.ids.append(id)
                    left -= 1
        finally:
            writer.close()


@pytest.mark.second_tier
@pytest.mark.parametrize("seed", [1])
def test_every_stream_sees_every_event_once_and_in_order(url: str, seed: int) -> None:
    chance = random.Random(seed)
    # With PostgreSQL, clients go from one server to the other.
    servers = Servers(url, [free_port() for _ in range(1 if url.startswith("sqlite") else 2)])
    with ExitStack() as stack:
        store = stack.enter_context(open_store(url))
        stack.callback(servers.kill)
        for port in servers.ports:
            servers.start(port)
        streams = [
            Stream(servers.ports, random.Random(f"{seed} {number}"), 0 if number % 2 else None)
            for number in range(STREAMS)
        ]

        async def run() -> None:
            for port in servers.ports:
                await servers.serving(port)
            listening = [asyncio.create_task(stream.run()) for stream in streams]
            while not all(stream.connections for stream in streams):
                await asyncio.sleep(0.05)
            writers = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", WRITER, url, str(EVENTS_OF_A_WRITER), f"{seed}-{number}"]
                    )
                )
                for number in range(2)
            ]
            restarts = 0
            while restarts < RESTARTS or any(writer.poll() is None for writer in writers):
                await asyncio.sleep(chance.random())
                port = chance.choice(servers.ports)
                await asyncio.to_thread(
                    servers.restart, port, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
                )
                restarts += 1
                await servers.serving(port)
            assert [writer.wait() for writer in writers] == [0, 0]
            written = [event.id for event in store.events.since(0, 10 * EVENTS_OF_A_WRITER)]
            assert len(written) == 2 * EVENTS_OF_A_WRITER
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while asyncio.get_running_loop().time() < deadline and any(
                stream.ids[-1:] != written[-1:] for stream in streams
            ):
                await asyncio.sleep(0.1)
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
            for stream in streams:
                assert stream.start is not None
                assert stream.ids == [id for id in written if id > stream.start]
            assert sum(stream.connections for stream in streams) > STREAMS * 2

        asyncio.run(run())
