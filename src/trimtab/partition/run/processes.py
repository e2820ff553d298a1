"""Starts the processes of a run, watches them, and kills all of them at the end."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from trimtab.core import TrimtabError
from trimtab.kernel import Owner, die_with_parent

_LOOK_EVERY = 0.02
_MOMENT = 2.0
_LOST = ("Connection", "connection", "Socket")


class RunFailedError(TrimtabError):
    """A process of a run failed or took too long; the message says which and why."""

    exit_status = 1


def run_processes(
    count: int,
    command: Callable[[int], list[str]],
    folder: Path,
    timeout: float,
    threads: int,
    name: Callable[[int], str],
) -> None:
    """Start `count` processes and wait until all succeed; on any failure the others are killed.

    `command(rank)` is the command of a rank, `name(rank)` its name in errors; output goes to `folder`.
    """
    children: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    source_root = str(Path(__file__).parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source_root, os.environ.get("PYTHONPATH")]))
    try:
        for rank in range(count):
            with errors_file(folder, rank).open("wb") as output:
                child = subprocess.Popen(
                    command(rank), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
                )
            children.append(child)
        _wait(children, folder, timeout, name)
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def errors_file(folder: Path, rank: int) -> Path:

    return folder / f"errors-{rank}.txt"


def worker(part: str, folder: Path, rank: int) -> list[str]:
    """The command of a process with the given part ("rank" or "link") and folder."""
    return [sys.executable, "-m", "trimtab.partition.run.processes", part, str(folder), str(rank)]


def _wait(
    children: list[subprocess.Popen[bytes]], folder: Path, timeout: float, name: Callable[[int], str]
) -> None:
    deadline = time.monotonic() + timeout
    while True:
        states = [child.poll() for child in children]
        if any(state not in (None, 0) for state in states):
            # The first to fail need not be the cause: others have a moment to fail too.
            moment = time.monotonic() + _MOMENT
            while time.monotonic() < moment and any(child.poll() is None for child in children):
                time.sleep(_LOOK_EVERY)
            raise RunFailedError(_failure(children, folder, name))
        if all(state == 0 for state in states):
            return
        if time.monotonic() > deadline:
            running = ", ".join(name(rank) for rank, state in enumerate(states) if state is None)
            raise RunFailedError(f"the run did not end within {timeout:g} s; still running: {running}")
        time.sleep(_LOOK_EVERY)


def _failure(children: list[subprocess.Popen[bytes]], folder: Path, name: Callable[[int], str]) -> str:
    """Sentence on the first failure that is not a lost connection to another failed process."""
    failed = [rank for rank, child in enumerate(children) if child.poll() not in (None, 0)]
    lines = {}
    for rank in failed:  # the last line that belongs to an error
        text = errors_file(folder, rank).read_text(errors="replace")
        output = [line.strip() for line in text.splitlines()]
        errors = [line for line in output if line and not line.startswith(("warnings.warn", "[W"))]
        lines[rank] = errors[-1][:400] if errors else ""
    rank = min(failed, key=lambda r: (any(word in lines[r] for word in _LOST), r))
    status = children[rank].returncode
    how = "failed" if status > 0 else f"was killed by signal {-status}"
    if status == -signal.SIGKILL:
        how += " (its memory may have run out)"
    detail = f": {lines[rank]}" if lines[rank] and status in (*range(1, 256), -signal.SIGABRT) else ""
    return f"{name(rank)} {how}{detail}"


@contextmanager
def meeting_folder() -> Iterator[Path]:
    """A folder of this process, removed at the end; folders of killed processes are removed first."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.gettempdir()) / Owner.current().name(f"run{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove folders of runs whose process has ended."""
    for folder in parent.glob("trimtab-*-run*"):
        owner = Owner.of(folder.name)
        if owner is not None and owner.is_gone():
            shutil.rmtree(folder, ignore_errors=True)


def main(part: str, folder: Path, rank: int) -> None:
    """Run a rank of a run or an end of a link."""
    # PyTorch is imported only here, in the child process.
    if part == "rank":
        from trimtab.partition.run.rank_process import run_rank as run
    else:
        from trimtab.partition.run.measuring import run_end as run
    run(folder, rank)


def leave_at_once() -> NoReturn:
    """End the process with status 0 and no destructors.

    Those of PyTorch's threads abort one of about twelve processes that used gloo ("terminate called without
    an active exception").
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def cause(error: BaseException) -> str:
    """Root cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    try:
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    except Exception as error:
        traceback.print_exc()
        sys.exit(cause(error))
    leave_at_once()
