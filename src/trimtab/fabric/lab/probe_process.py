"""One end of the probes, run by path with any Python: it imports nothing of Trimtab.

    probe_process.py send SOURCE TARGET PORT FLOWS PERIOD
    probe_process.py receive TARGET PORT FILE

A packet is a flow, a number that grows by one, and when it was sent; the receiver appends when it arrived.
"""

import contextlib
import gc
import os
import socket
import struct
import sys
import time

PACKET = struct.Struct("<IId")
RECEIVED = struct.Struct("<d")
RECORD = struct.Struct("<IIdd")
_FLUSH = 0.02  # s without a packet


def send(source: str, target: str, port: int, flows: int, period: float) -> None:
    """Send for ever: every flow has its own port, so each may take another path.

    From one core, because a tunnel caches a path per core: a sender that moves to another core would move to
    another path in the middle of an outage.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sockets = []
    for flow in range(flows):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((source, port + flow))
        opened.setblocking(False)
        sockets.append(opened)
    number, due = 0, time.monotonic()
    while True:
        for flow, opened in enumerate(sockets):
            with contextlib.suppress(OSError):  # no route at the moment: it counts as sent and lost
                opened.sendto(PACKET.pack(flow, number, time.monotonic()), (target, port))
        number += 1
        due = max(due + period, time.monotonic() - period)
        time.sleep(max(0.0, due - time.monotonic()))


def receive(target: str, port: int, path: str) -> None:
    """Write every packet to the file, for ever."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
    opened.bind((target, port))
    opened.settimeout(_FLUSH)
    with open(path, "ab", buffering=1 << 16) as file:
        print("ready", flush=True)
        flushed = time.monotonic()
        while True:
            try:
                packet = opened.recv(PACKET.size)
                now = time.monotonic()
                file.write(packet + RECEIVED.pack(now))
            except TimeoutError:
                now = time.monotonic()
            if now - flushed > _FLUSH:
                file.flush()
                flushed = now


if __name__ == "__main__":
    gc.disable()
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
    else:
        receive(sys.argv[2], int(sys.argv[3]), sys.argv[4])
