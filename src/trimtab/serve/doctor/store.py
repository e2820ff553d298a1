"""Where everything is kept: whether it is there, of which schema, and how roomy and quick its disk is."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from trimtab.core import TrimtabError, format_bytes, format_duration, home
from trimtab.serve.doctor.finding import Finding, missing, ok, warning, why
from trimtab.serve.settings import Settings

_ROOM_WANTED, _ROOM_NEEDED = 2**30, 64 * 2**20  # bytes
_SYNCS = 5
_SLOW = 0.03  # s for a write to be on the disk
_OVER_A_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "lustre")


def look(settings: Settings) -> Iterator[Finding]:
    """The database, then the folder that holds it, or Trimtab's home where it is elsewhere."""
    from trimtab.store import look_at_store

    folder = home()
    try:
        seen = look_at_store(settings.store or None)
    except TrimtabError as error:
        yield missing(
            "store",
            why(error),
            "everything that is kept: trimtab up, the ledger, jobs",
            "start the database, or name another with TRIMTAB_STORE",
            needed=True,
        )
    else:
        folder = seen.path.parent if seen.path is not None else folder
        if seen.revision is None:
            yield ok("store", f"{seen.name}: not there yet; it is made at the first use", needed=True)
        elif seen.revision != seen.newest:
            yield ok(
                "store",
                f"{seen.name}, schema {seen.revision}; back it up: opening it brings it to {seen.newest}",
                needed=True,
            )
        else:
            yield ok("store", f"{seen.name}, schema {seen.revision}", needed=True)
        if seen.path is not None:
            yield _local(folder)
    yield from _disk(folder)


def _disk(folder: Path) -> Iterator[Finding]:
    """Room, and the time until a write lasts."""
    place = _nearest(folder)
    room = shutil.disk_usage(place).free
    seen = f"{format_bytes(room)} free in {place}"
    if room < _ROOM_WANTED:
        disables, mend = "writes, once it is full", f"free some space below {place}"
        few = room < _ROOM_NEEDED
        yield (
            missing("room", seen, disables, mend, needed=True)
            if few
            else warning("room", seen, disables, mend)
        )
    else:
        yield ok("room", seen)
    try:
        seconds = _sync(place)
    except OSError as error:
        yield missing(
            "writing",
            f"{place}: {why(error)}",
            "everything that is kept",
            f"chown {os.geteuid()} {place}, or name another folder with TRIMTAB_HOME",
            needed=True,
        )
        return
    seen = f"{format_duration(seconds)} until a write is on the disk (median of {_SYNCS})"
    if seconds > _SLOW:
        yield warning("writing", seen, "quick answers to writes", "keep the store on a faster disk")
    else:
        yield ok("writing", seen, needed=True)


def _local(folder: Path) -> Finding:
    place = _nearest(folder)
    kind = _file_system(place)
    if kind in _OVER_A_NETWORK:
        return warning(
            "file system",
            f"{kind}, over a network",
            "the promise that SQLite keeps what it has written",
            "keep the file on a local disk, or use PostgreSQL: TRIMTAB_STORE=postgresql://…",
        )
    return ok("file system", kind or "unknown")


def _file_system(place: Path) -> str:
    """Of the mount that holds a folder; the longest mount point above it."""
    best, found = -1, ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        point = head.split()[4].replace("\\040", " ")
        if place.is_relative_to(point) and len(point) >= best:
            best, found = len(point), tail.split()[0]
    return found


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists: there it would be made."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _sync(place: Path) -> float:
    """Seconds until a page is on the disk; the trial's file has no name and goes with its handle."""
    took = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(_SYNCS):
            start = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - start)
    return median(took)
