"""One end of TCP streams, run by path with any Python: it imports nothing of ours.

    stream_process.py send SOURCE TARGET PORT FLOWS SECONDS
    stream_process.py receive TARGET PORT FLOWS

The receiver says "ready", takes that many streams at once, each in a thread, and then says how many bytes
came and in how many seconds, from the first byte of any stream to the last.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

_PIECE = 1 << 20  # bytes


def send(source: str, target: str, port: int, flows: int, seconds: float) -> None:
    """Send as much as goes through."""
    sockets = [
        socket.create_connection((target, port), timeout=10.0, source_address=(source, 0))
        for _ in range(flows)
    ]
    end = time.monotonic() + seconds
    _in_threads([partial(_fill, made, end) for made in sockets])


def receive(target: str, port: int, flows: int) -> None:
    """Take what comes, and tell."""
    with socket.create_server((target, port)) as server:
        server.settimeout(30.0)
        print("ready", flush=True)
        sockets = [server.accept()[0] for _ in range(flows)]
    counts = [0] * flows
    began = time.monotonic()
    _in_threads([partial(_drain, made, counts, place) for place, made in enumerate(sockets)])
    print(sum(counts), time.monotonic() - began, flush=True)


def _fill(made: socket.socket, end: float) -> None:
    piece = memoryview(bytes(_PIECE))
    with made:
        while time.monotonic() < end:
            made.sendall(piece)


def _drain(made: socket.socket, counts: list[int], place: int) -> None:
    room = memoryview(bytearray(_PIECE))
    with made:
        while came := made.recv_into(room):
            counts[place] += came


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
    else:
        receive(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
