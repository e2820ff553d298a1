"""Records when it wakes late, run by path with any Python: `pauses_process.py FILE`.

A record is when it woke (monotonic seconds) and how late that was (seconds); short delays are not recorded.
"""

import os
import struct
import sys
import time

RECORD = struct.Struct("<dd")
_NAP = 0.001  # s
_LATE = 0.001  # s, less is no pause


def watch(path: str) -> None:
    """Record pauses forever, on the core on which probes are sent."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with open(path, "ab", buffering=0) as file:
        print("ready", flush=True)
        while True:
            due = time.monotonic() + _NAP
            time.sleep(_NAP)
            woke = time.monotonic()
            if woke - due > _LATE:
                file.write(RECORD.pack(woke, woke - due))


if __name__ == "__main__":
    watch(sys.argv[1])
