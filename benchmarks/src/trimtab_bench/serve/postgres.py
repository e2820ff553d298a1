"""A PostgreSQL server of our own: on a loopback port, in a folder that is removed with it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab_bench.serve.processes import free_port

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"


def programs() -> Path:
    """The folder of the newest server's programs; raises where none is installed."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"))
    if not found:
        raise MissingDependencyError("there is no PostgreSQL server here; apt-get install postgresql")
    return found[-1].parent


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database while the block runs."""
    binaries = programs()
    # Not in the home: the server's own user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-postgres-"))
    data, port = folder / "data", free_port()
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _USER, _USER)
        told = ("-U", "trimtab", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        _ran(binaries / "initdb", "-D", str(data), *told)
        options = f"-h 127.0.0.1 -p {port} -k {folder}"
        _ran(binaries / "pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql://trimtab@127.0.0.1:{port}/postgres"
    finally:
        if (data / "postmaster.pid").exists():
            with contextlib.suppress(TrimtabError):
                _ran(binaries / "pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _ran(program: Path, *arguments: str) -> None:
    command = [str(program), *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", *command]
    # A server that had a pipe for its output would keep it, and whoever waits for its end.
    done = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise TrimtabError(f"{program.name} failed with status {done.returncode}")
