"""One end of TCP streams, run by path with any Python: it imports nothing of Trimtab.

    stream_process.py send SOURCE TARGET PORT FLOWS SECONDS
    stream_process.py receive TARGET PORT FLOWS

The receiver prints "ready", receives that many streams at once, each in a thread, and then prints how many
bytes came and in how many seconds, from the first byte of any stream to the last.
"""

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

_PIECE = 1 << 20  # bytes


def send(source: str, target: str, port: int, flows: int, seconds: float) -> None:
    """Send as much as possible for so many seconds."""
    sockets = [
        socket.create_connection((target, port), timeout=10.0, source_address=(source, 0))
        for _ in range(flows)
    ]
    end = time.monotonic() + seconds
    piece = memoryview(bytes(_PIECE))

    def fill(flow: int) -> None:
        with sockets[flow] as stream:
            while time.monotonic() < end:
                stream.sendall(piece)

    with ThreadPoolExecutor(flows) as pool:
        list(pool.map(fill, range(flows)))


def receive(target: str, port: int, flows: int) -> None:
    """Receive all streams, and print how many bytes came and in how many seconds."""
    with socket.create_server((target, port)) as server:
        server.settimeout(30.0)
        print("ready", flush=True)
        sockets = [server.accept()[0] for _ in range(flows)]
    began = time.monotonic()

    def drain(flow: int) -> int:
        room, count = memoryview(bytearray(_PIECE)), 0
        with sockets[flow] as stream:
            while received := stream.recv_into(room):
                count += received
        return count

    with ThreadPoolExecutor(flows) as pool:
        counts = list(pool.map(drain, range(flows)))
    print(sum(counts), time.monotonic() - began, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
    else:
        receive(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
