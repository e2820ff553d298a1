"""An open-loop client: requests are sent when they are due, whether or not earlier ones have been answered.

Latency counts from when a request should have been sent, so a service that stalls is charged for everyone who
had to wait. A request that fails is sent again until its time is up, as a patient client would.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEADLINE = 10.0  # s after which nobody waits for an answer any more
_AGAIN = 0.05  # s between two attempts


@dataclass(frozen=True, slots=True)
class Target:
    """Requests to a port: when each is due, in seconds from the start, and what it asks for."""

    port: int
    time: tuple[float, ...]
    paths: tuple[str, ...]


def send(targets: Sequence[Target], start: float) -> list[NDArray[np.float64]]:
    """Send everything, from `start` (monotonic time) on; latencies in seconds, NaN where nobody answered."""
    return asyncio.run(_send_all(targets, start))


async def _send_all(targets: Sequence[Target], start: float) -> list[NDArray[np.float64]]:
    return list(await asyncio.gather(*(_send_to(target, start) for target in targets)))


async def _send_to(target: Target, start: float) -> NDArray[np.float64]:
    idle: list[_Line] = []
    waiting = []
    for due, path in zip(target.time, target.paths, strict=True):
        left = start + due - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        waiting.append(asyncio.create_task(_answered(target.port, path, start + due, idle)))
    latency = await asyncio.gather(*waiting)
    for line in idle:
        line.close()
    return np.array(latency, dtype=float)


async def _answered(port: int, path: str, due: float, idle: list["_Line"]) -> float:
    while (left := due + DEADLINE - time.monotonic()) > 0:
        line = None
        try:
            async with asyncio.timeout(left):
                line = idle.pop() if idle else await _Line.to(port)
                await line.ask(path)
        except (OSError, EOFError, TimeoutError):
            if line is not None:
                line.close()
            await asyncio.sleep(_AGAIN)
            continue
        idle.append(line)
        return time.monotonic() - due
    return float("nan")


class _Line:
    """A connection that is used again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "_Line":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, path: str) -> None:
        """Send a request and read its answer, whose body is two bytes."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(2)

    def close(self) -> None:
        self._writer.close()
