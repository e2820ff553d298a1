"""The plan of a load, its latencies, and the open-loop client over kept connections."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable

import numpy as np
from hypothesis import given, strategies as st
from trimtab_bench.open_loop import OpenLoopClient, content_length
from trimtab_bench.serve.load import LoadResult, arrivals, latency, mixed

SHARES = st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0.1, 10.0), min_size=1, max_size=6)


@given(SHARES, st.integers(1, 2000), st.integers(0, 3), st.integers(1, 3), st.integers(0, 9))
def test_a_plan_has_as_many_requests_after_the_warm_up_as_its_rate_says(
    shares: dict[str, float], rate: int, warm_up: int, seconds: int, seed: int
) -> None:
    times, names = arrivals(mixed(shares, float(rate)), float(warm_up), float(seconds), seed)
    measured = [time for time in times if time >= warm_up]
    assert len(measured) == rate * seconds
    assert len(times) == len(names) == rate * (warm_up + seconds)
    assert times == sorted(times)
    assert all(0.0 <= time <= warm_up + seconds for time in times)


def test_a_plan_keeps_the_shares_of_its_operations_and_of_reads_and_writes_exactly() -> None:
    rates = mixed({"a": 1.0, "b": 2.0}, 1500.0) | mixed({"w": 1.0, "x": 0.7}, 300.0)
    times, names = arrivals(rates, 5.0, 30.0, 0)
    counts = Counter(name for time, name in zip(times, names, strict=True) if time >= 5.0)
    assert (counts["a"], counts["b"]) == (15_000, 30_000)
    assert counts["w"] + counts["x"] == 9_000


def test_moments_are_random_and_the_same_for_the_same_seed() -> None:
    plan = arrivals({"a": 1000.0}, 0.0, 10.0, 3)
    gaps = np.diff(plan[0])
    # Of independent moments, the gaps spread as widely as their mean.
    assert 0.9 < gaps.std() / gaps.mean() < 1.1
    assert plan == arrivals({"a": 1000.0}, 0.0, 10.0, 3)
    assert plan != arrivals({"a": 1000.0}, 0.0, 10.0, 4)


@given(st.lists(st.floats(0.0, 100.0), min_size=1))
def test_quantiles_are_measured_values_and_at_most_a_hundredth_lies_above(seconds: list[float]) -> None:
    found = latency(seconds)
    assert found.count == len(seconds)
    assert {found.p50_ms, found.p99_ms, found.max_ms} <= {each * 1e3 for each in seconds}
    assert found.p50_ms <= found.p99_ms <= found.max_ms
    assert sum(each * 1e3 > found.p99_ms for each in seconds) <= 0.01 * len(seconds)


def test_a_load_without_an_answer_has_no_good_latency() -> None:
    assert math.isinf(latency([]).p99_ms)


def test_operations_are_taken_together_and_failures_counted() -> None:
    result = LoadResult(
        2.0, {"a": [0.001, 0.002], "b": [0.5]}, {"a": 2, "b": 0}, {"a: 500": 2, "b: 404": 1}, 0.1, 0.0
    )
    assert result.per_second(["a", "b", "c"]) == 1.0
    assert result.of(["a", "b"]).max_ms == 500.0
    assert result.of(["a"]).max_ms == 2.0
    assert result.failed == 3


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, lines: int, requests: int) -> list[tuple[int, bytes]]:
    """Answers of a server that handles each connection with `serve`."""

    async def whole() -> list[tuple[int, bytes]]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found: list[tuple[int, bytes]] = []
        done = asyncio.Event()

        def answered(status: int, body: bytes) -> None:
            found.append((status, body))
            if len(found) == requests:
                done.set()

        kept = OpenLoopClient(server.sockets[0].getsockname()[1], lines)
        for _ in range(requests):
            kept.send(b"GET / HTTP/1.1\r\n\r\n", answered)
        async with asyncio.timeout(10):
            await done.wait()
        await kept.close()
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
