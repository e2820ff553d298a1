"""The clients, as a process: submit jobs, and follow event streams, opened again when they break.

The process reads one `Clients` from its input and begins. After the line `"stop"` it submits no more, and
writes a line once every submission is acknowledged. After a list of the ids of all events it writes how many
of them streams missed.
"""

import asyncio
import contextlib
import json
import random
import re
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from trimtab_bench.chaos import worker
from trimtab_bench.open_loop import OpenLoopClient
from trimtab_bench.processes import write_line
from trimtab_bench.serve.requests import post

ACKNOWLEDGED = "acknowledged.jsonl"

_CONNECTIONS = 8
_RETRY = 0.5  # s before a submission that was not acknowledged is sent again, under the same key
_RECONNECT = (0.05, 0.5)  # s before a stream is opened again
_SILENCE = 40.0  # s without a heartbeat, after which a stream is given up
_PATIENCE = 60.0  # s for the last events
_EVENT = re.compile(rb"^id: (\d+)\n", re.MULTILINE)
_SECONDS = (0.3, 4.0)  # of a job's command
_CPUS = 0.1
_RETRIES = 1000
_SHOWN = 20  # ids of missed events in the result


@dataclass(frozen=True, slots=True)
class Clients:
    """Jobs per second, and streams, at a port; files are in `folder`."""

    port: int
    folder: str
    rate: float
    streams: int
    seed: int


@dataclass(slots=True)
class Submitter:
    """Submits jobs at random moments until it is told to stop."""

    plan: Clients
    client: OpenLoopClient
    open: int = 0
    acknowledged: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _file: TextIO = sys.stderr

    async def run(self) -> None:
        dice = random.Random(self.plan.seed)
        with Path(self.plan.folder, ACKNOWLEDGED).open("a", encoding="utf-8") as self._file:
            number = 0
            while not self.stopped.is_set():
                number += 1
                self._submit(f"chaos-{number}", dice.uniform(*_SECONDS))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), dice.expovariate(self.plan.rate))
            while self.open:
                await asyncio.sleep(0.05)

    def _submit(self, name: str, seconds: float) -> None:
        self.open += 1
        job = {
            "name": name,
            "kind": "batch",
            "command": [
                sys.executable,
                "-I",
                "-S",
                worker.__file__,
                self.plan.folder,
                name,
                f"{seconds:.2f}",
            ],
            "resources": {"cpus": _CPUS},
            "retries": _RETRIES,
        }
        request = post("/v1/jobs", "", name, json.dumps({"jobs": [job]}).encode())

        def answered(status: int, body: bytes) -> None:
            if 200 <= status < 300:
                self.open -= 1
                self.acknowledged += 1
                line = {"name": name, "id": json.loads(body)["items"][0]["id"]}
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()
            elif 400 <= status < 500 and status not in (408, 409, 425, 429):
                self.open -= 1
                self.refused[f"{status} {body[:200].decode(errors='replace')}"] += 1
            else:
                asyncio.get_running_loop().call_later(_RETRY, self.client.send, request, answered)

        self.client.send(request, answered)


@dataclass(slots=True, eq=False)
class FollowedStream:
    """One stream: ids of its events in the order in which they came, and how often it was opened."""

    port: int
    dice: random.Random
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    opened: int = 0

    @property
    def last(self) -> int:
        return self.ids[-1] if self.ids else 0

    async def follow(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._read()
            await asyncio.sleep(self.dice.uniform(*_RECONNECT))

    async def _read(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            request = (
                f"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {self.last}\r\n\r\n"
            )
            writer.write(request.encode())
            async with asyncio.timeout(_SILENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            if head[9:12] != b"200":
                return
            self.opened += 1
            rest = b""
            while True:
                async with asyncio.timeout(_SILENCE):
                    data = await reader.read(65536)
                if not data:
                    return
                complete, end, rest = (rest + data).rpartition(b"\n\n")
                self.ids.extend(map(int, _EVENT.findall(complete + end)))
        finally:
            writer.close()


def compare_streams(streams: Iterable[Sequence[int]], expected: Sequence[int]) -> dict[str, Any]:
    """Events that streams missed, and that they got again, late or although they do not exist."""
    missed, repeated, which = 0, 0, set[int]()
    every = set(expected)
    for ids in streams:
        absent = every.difference(ids)
        missed += len(absent)
        which |= absent
        last = 0
        for id in ids:
            repeated += id <= last or id not in every
            last = max(last, id)
    return {"events_missed": missed, "events_repeated": repeated, "missed_ids": sorted(which)[:_SHOWN]}


async def run_clients(plan: Clients) -> None:
    async with asyncio.TaskGroup() as tasks:
        streams = [
            FollowedStream(plan.port, random.Random(f"{plan.seed} {number}"))
            for number in range(plan.streams)
        ]
        followers = [tasks.create_task(stream.follow()) for stream in streams]
        client = OpenLoopClient(plan.port, _CONNECTIONS)
        submitter = Submitter(plan, client)
        submitting = tasks.create_task(submitter.run())
        await asyncio.to_thread(sys.stdin.readline)
        submitter.stopped.set()
        await submitting
        write_line(acknowledged=submitter.acknowledged, refused=dict(submitter.refused))
        expected = json.loads(await asyncio.to_thread(sys.stdin.readline))
        last, deadline = max(expected, default=0), time.monotonic() + _PATIENCE
        while any(stream.last < last for stream in streams) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        opened = sum(stream.opened for stream in streams)
        write_line(**compare_streams([stream.ids for stream in streams], expected), opened=opened)
        for follower in followers:
            follower.cancel()
        await client.close()


def main() -> None:
    import uvloop

    uvloop.run(run_clients(Clients(**json.loads(sys.stdin.readline()))))


if __name__ == "__main__":
    main()
