"""Processes of a run: started together, watched, and all of them gone afterwards."""

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

from trimtab.core import TrimtabError
from trimtab.kernel import Owner, die_with_parent

_LOOK_EVERY = 0.02
_MOMENT = 2.0


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
    """Start `count` processes and wait until all have ended well; on any failure the others are killed.

    `command(rank)` is what a rank runs, `name(rank)` what to call it; their output goes to files in `folder`.
    """
    children: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_source_root(), os.environ.get("PYTHONPATH")]))
    try:
        for rank in range(count):
            with errors_file(folder, rank).open("wb") as errors:
                children.append(
                    subprocess.Popen(
                        command(rank),
                        stdin=subprocess.DEVNULL,
                        stdout=errors,
                        stderr=errors,
                        env=environment,
                    )
                )
        _wait(children, folder, time.monotonic() + timeout, timeout, name)
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def errors_file(folder: Path, rank: int) -> Path:
    """Where a rank's output goes."""
    return folder / f"errors-{rank}.txt"


def worker(part: str, folder: Path, rank: int) -> list[str]:
    """The command that plays a part ("rank" or "link") of what lies in a folder."""
    return [sys.executable, "-m", "trimtab.partition.run.processes", part, str(folder), str(rank)]


def _source_root() -> str:
    return str(Path(__file__).parents[3])


def _wait(
    children: list[subprocess.Popen[bytes]],
    folder: Path,
    deadline: float,
    timeout: float,
    name: Callable[[int], str],
) -> None:
    while True:
        states = [child.poll() for child in children]
        failed = [rank for rank, state in enumerate(states) if state not in (None, 0)]
        if failed:
            raise RunFailedError(_why(children, _all_failed(children), folder, name))
        if all(state == 0 for state in states):
            return
        if time.monotonic() > deadline:
            running = ", ".join(name(rank) for rank, state in enumerate(states) if state is None)
            raise RunFailedError(f"the run did not end within {timeout:g} s; still running: {running}")
        time.sleep(_LOOK_EVERY)


def _all_failed(children: list[subprocess.Popen[bytes]]) -> list[int]:
    """Ranks that failed, after a moment for others to fail too: the first to end need not be the cause."""
    moment = time.monotonic() + _MOMENT
    while time.monotonic() < moment and any(child.poll() is None for child in children):
        time.sleep(_LOOK_EVERY)
    return [rank for rank, child in enumerate(children) if child.poll() not in (None, 0)]


def _why(
    children: list[subprocess.Popen[bytes]], failed: list[int], folder: Path, name: Callable[[int], str]
) -> str:
    """The first failure in words: of those that failed by themselves, not because another was gone."""
    lines = {rank: _last_error(errors_file(folder, rank)) for rank in failed}
    rank = min(failed, key=lambda r: (_is_echo(lines[r]), r))
    status = children[rank].returncode
    how = "failed" if status > 0 else f"was killed by signal {-status}"
    if status == -signal.SIGKILL:
        how += " (its memory may have run out)"
    detail = f": {lines[rank]}" if lines[rank] and status > 0 else ""
    return f"{name(rank)} {how}{detail}"


def _is_echo(line: str) -> bool:
    return "Connection" in line or "connection" in line or "Socket" in line


def _last_error(path: Path) -> str:
    """Last line of a process.s output that belongs to an error."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    causes = [line for line in lines if line and not line.startswith(("warnings.warn", "[W"))]
    return causes[-1][:400] if causes else ""


@contextmanager
def meeting_folder() -> Iterator[Path]:
    """A folder of this process's own, removed at the end; so are those of processes that were killed."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.gettempdir()) / Owner.current().name(f"run{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove folders of runs whose process is gone."""
    for folder in parent.glob("trimtab-*-run*"):
        owner = Owner.of(folder.name)
        if owner is not None and owner.is_gone():
            shutil.rmtree(folder, ignore_errors=True)


def main(part: str, folder: Path, rank: int) -> None:
    """Play a part, rank of a run or end of a link; PyTorch loads only here."""
    if part == "rank":
        from trimtab.partition.run.rank_process import run_rank

        run_rank(folder, rank)
    else:
        from trimtab.partition.run.measuring import run_end

        run_end(folder, rank)


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
