"""Hosts tell each other what they lost; anything else that arrives is nothing."""

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest
from waiting import until

from trimtab.fabric.failover.messages import PORT, Notice, Notices


@pytest.fixture
def listening() -> Iterator[Notices]:
    notices = Notices(IPv4Address("127.0.0.11"))
    yield notices
    notices.close()


def hear(notices: Notices) -> list[Notice]:
    received = list[Notice]()
    until(lambda: received.extend(notices.received()) or received)
    return received


def test_a_notice_says_who_lost_what_and_for_how_long(listening: Notices) -> None:
    other = Notices(IPv4Address("127.0.0.12"))
    other.send(["127.0.0.11", "127.0.0.13"], {65102, 65101}, 3.0)
    assert hear(listening) == [Notice("127.0.0.12", frozenset({65101, 65102}), 3.0)]
    assert listening.received() == []
    other.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"lost": 5, "seconds": 1}',
        b'{"lost": ["x"], "seconds": 1}',
        b'{"lost": []}',
    ],
)
def test_what_is_no_notice_is_passed_over(listening: Notices, content: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.14", 0))
        made.sendto(content, ("127.0.0.11", PORT))
        made.sendto(b'{"lost": [1], "seconds": 1e9}', ("127.0.0.11", PORT))
    assert hear(listening)[-1:] == [Notice("127.0.0.14", frozenset({1}), 60.0)]
