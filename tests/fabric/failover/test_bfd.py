"""What bfdd says, however it comes: whole, in pieces, with what is not understood between."""

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.fabric.failover.messages import BfdSession, BfdSocket


def message(notice: object, kind: int = 4) -> bytes:
    content = notice if isinstance(notice, bytes) else json.dumps(notice).encode()
    return struct.pack(">IHBB", len(content), 0, kind, 1) + content


def status(state: str, peer: str = "172.16.1.3") -> dict[str, str]:
    return {"op": "status", "peer-address": peer, "local-interface": "p1", "state": state}


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "bfdd.sock"))
        made.listen()
        made.settimeout(5)
        yield made


def test_states_come_in_pieces_and_what_is_not_one_is_passed_over(
    listening: socket.socket, tmp_path: Path
) -> None:
    bfd = BfdSocket(tmp_path / "bfdd.sock")
    assert bfd.connect()
    there, _ = listening.accept()
    assert there.recv(64)[:8] == struct.pack(">IHBB", 8, 1, 4, 1)
    data = message({"status": "ok"}, kind=1) + message(status("up")) + message(b"{no json") + message([1, 2])
    data += message({"op": "add", "peer-address": "172.16.1.3"}) + message(status("down"))
    heard = list[BfdSession]()
    for place in range(0, len(data), 7):
        there.sendall(data[place : place + 7])
        heard += bfd.sessions()
    assert [(each.peer, each.device, each.state) for each in heard] == [
        ("172.16.1.3", "p1", "up"),
        ("172.16.1.3", "p1", "down"),
    ]
    there.close()
    bfd.close()


def test_a_bfdd_that_ends_is_noticed_and_found_again(listening: socket.socket, tmp_path: Path) -> None:
    bfd = BfdSocket(tmp_path / "bfdd.sock")
    assert bfd.connect()
    there, _ = listening.accept()
    there.sendall(message(status("up")) + message(status("down"))[:20])
    there.close()
    assert [each.state for each in bfd.sessions()] == ["up"]
    assert not bfd.connected
    assert bfd.connect()
    there, _ = listening.accept()
    there.sendall(message(status("init")))
    assert [each.state for each in bfd.sessions()] == ["init"]
    there.sendall(b"\xff" * 64)
    assert bfd.sessions() == []
    assert not bfd.connected
    there.close()


def test_where_no_bfdd_listens_there_is_none(tmp_path: Path) -> None:
    bfd = BfdSocket(tmp_path / "bfdd.sock")
    assert not bfd.connect()
    assert not bfd.connected
    assert bfd.sessions() == []
