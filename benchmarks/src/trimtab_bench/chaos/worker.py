"""The command of a job: appends a line when it begins and one when it has done its work.

It holds a lock of its job, so that a second worker of the same job that is alive at the same time is noticed.
Run as a file, with the standard library only: `worker.py FOLDER JOB SECONDS`.
"""

import fcntl
import json
import os
import sys
import time

RECORDS = "records.jsonl"
LOCKS = "locks"


def run_of(pid: int) -> str:
    """Id of the run in whose control group a process is: "…/trimtab-run-0123456789ab"."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as groups:
            return groups.read().partition("trimtab-run-")[2][:12]
    except OSError:
        return ""


def main(folder: str, job: str, seconds: str) -> None:
    records = os.open(f"{folder}/{RECORDS}", os.O_WRONLY | os.O_APPEND)

    def record(what: str) -> None:
        line = {"job": job, "what": what, "pid": os.getpid(), "run": run, "time": time.monotonic()}
        os.write(records, json.dumps(line).encode() + b"\n")  # one write, so that lines do not mix

    run = run_of(os.getpid())
    lock = os.open(f"{folder}/{LOCKS}/{job}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        record("concurrent")
    record("begin")
    deadline = time.monotonic() + float(seconds)
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(left)
    record("end")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
