"""The bench's own stream against a real gRPC server: whatever is said comes back, and an end is noticed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from trimtab_bench.resize_scale.agents import LightStream

from trimtab.core import TrimtabError
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.joining import issue


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[LightStream]:
    """To a server that answers with what it hears, twice, and hangs up when it hears "end"."""
    authority = Authority(tmp_path / "controller")
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Say": handler}),))
    keys = [(authority.server_key, authority.server_certificate)]
    credentials = grpc.ssl_server_credentials(keys, authority.certificate, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    stream = LightStream(issue(authority, "node", f"127.0.0.1:{port}"), tmp_path / "node", "/test.Echo/Say")
    yield stream
    stream.close()
    server.stop(0)


def _echo(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for request in requests:
        if request == b"end":
            return
        yield request
        yield request


def _heard(stream: LightStream, count: int) -> list[bytes]:
    messages = list[bytes]()
    while len(messages) < count:
        messages += stream.receive()
    return messages


def test_messages_of_any_size_come_whole_and_in_order(stream: LightStream) -> None:
    for round_ in range(30):
        for size in (0, 1, 2_000, 16_379, 16_380, 40_000):
            message = bytes([round_]) * size
            stream.send(message)
            assert _heard(stream, 2) == [message, message]


def test_several_messages_can_be_under_way(stream: LightStream) -> None:
    message_count = [b"%d" % number for number in range(100)]
    for message in message_count:
        stream.send(message)
    assert _heard(stream, 200) == [message for message in message_count for _ in range(2)]


def test_without_waiting_nothing_is_heard_before_it_comes(stream: LightStream) -> None:
    stream.send(b"hello")
    _heard(stream, 2)
    stream.do_not_wait()
    assert stream.receive() == []


def test_an_end_is_noticed(stream: LightStream) -> None:
    stream.send(b"end")
    with pytest.raises(TrimtabError, match="has closed the stream"):
        _heard(stream, 1)


def test_who_does_not_listen_is_noticed(stream: LightStream) -> None:
    stream.send(bytes(60_000))
    with pytest.raises(TrimtabError, match="does not take what agents say"):
        stream.send(bytes(60_000))
