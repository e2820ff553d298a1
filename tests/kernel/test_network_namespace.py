"""A network of our own: only loopback, which works, and nobody else's traffic is counted in it."""

import os
import subprocess
import sys

import pytest

from trimtab.kernel import NetworkNamespace, NoNamespaceError, network_bytes

TALK = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
for _ in range(100):
    client.sendall(b"x" * 10_000)
    left = 10_000
    while left:
        left -= len(other.recv(left))
print(",".join(name for _, name in socket.if_nameindex()), flush=True)
sys.stdin.read()
"""


def test_a_child_in_it_sees_only_loopback_and_only_its_own_bytes() -> None:
    try:
        network = NetworkNamespace()
    except NoNamespaceError as error:
        pytest.skip(f"needs root: {error}")
    ours = os.stat("/proc/self/ns/net").st_ino
    with network:
        child = subprocess.Popen(
            [sys.executable, "-c", TALK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=network.enter,
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"lo\n"
            assert os.stat(f"/proc/{child.pid}/ns/net").st_ino != ours
            received, sent = network_bytes(child.pid, loopback=True) or (0.0, 0.0)
            assert received == sent
            assert 1e6 < sent < 2e6
            assert network_bytes(child.pid) == (0.0, 0.0)
    assert os.stat("/proc/self/ns/net").st_ino == ours
