"""Kept connections: one request at a time on each, answers in pieces, connections that are lost."""

import asyncio
from collections.abc import Awaitable, Callable

from trimtab_bench.serve.lines import Lines, content_length

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, lines: int, requests: int) -> list[tuple[int, bytes]]:
    """What came back from a server that treats each connection as `serve` does."""

    async def whole() -> list[tuple[int, bytes]]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found: list[tuple[int, bytes]] = []
        done = asyncio.Event()

        def answered(status: int, body: bytes) -> None:
            found.append((status, body))
            if len(found) == requests:
                done.set()

        kept = Lines(server.sockets[0].getsockname()[1], lines)
        await kept.open()
        for _ in range(requests):
            kept.ask(b"GET / HTTP/1.1\r\n\r\n", answered)
        async with asyncio.timeout(10):
            await done.wait()
        kept.close()
        server.close()
        return found

    return asyncio.run(whole())


def test_more_requests_than_connections_wait_for_one_and_all_are_answered() -> None:
    most = 0
    now = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        while await reader.readuntil(b"\r\n\r\n"):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            writer.write(ANSWER)
            now -= 1

    async def until_gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    assert asked(until_gone, 3, 20) == [(200, b"hello")] * 20
    assert most <= 3


def test_an_answer_in_pieces_is_put_together() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for place in range(0, len(ANSWER), 7):
            writer.write(ANSWER[place : place + 7])
            await writer.drain()
            await asyncio.sleep(0.001)
        await reader.read()
        writer.close()

    assert asked(serve, 1, 1) == [(200, b"hello")]


def test_a_request_whose_connection_is_lost_is_no_answer_and_the_next_has_a_new_connection() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        if connections > 1:
            writer.write(ANSWER)
            await reader.read()
        writer.close()

    assert asked(serve, 1, 2) == [(0, b""), (200, b"hello")]


def test_the_length_of_a_body_is_found_whatever_the_case_of_its_header() -> None:
    assert content_length(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nx: y") == 12
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length:7") == 7
    assert content_length(b"HTTP/1.1 204 No Content") == 0
