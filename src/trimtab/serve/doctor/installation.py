"""Checks of Trimtab itself: packages, the files that settings name, the store, ports."""

import errno
import os
import re
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from statistics import median

from trimtab.core import TrimtabError, format_bytes, format_duration, home, split_address
from trimtab.serve.doctor.examination import Finding, check, missing, ok, warning, why
from trimtab.serve.settings import Settings, setting_of

EXTRAS = {
    "rivals": "trimtab partition --method metis and accelerate",
    "learn": "profiles and plans of PyTorch models, learned predictions",
    "postgres": "a store in PostgreSQL",
    "gpu": "watching NVIDIA accelerators",
    "kubernetes": "kubernetes://, pods for trimtab agent",
    "onnx": "plans for ONNX files",
    "ray": "running a Ray cluster from here (ray:// needs none)",
    "serve": "the API and the dashboard",
}
"""What goes without each extra's packages."""

_REQUIREMENT = re.compile(r'([\w.-]+)[^;]*;.*extra == ["\']([\w-]+)["\']')
_OLDEST_PYTHON = (3, 11)


@check("python", "this interpreter and the packages of each extra")
def check_python(settings: Settings) -> Iterator[Finding]:
    """The version first, then every extra for users."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _OLDEST_PYTHON:
        yield ok("Python", found, needed=True)
    else:
        yield missing("Python", found, "everything", "install Python 3.11 or later", needed=True)
    packages = extras()
    for extra, disables in EXTRAS.items():
        absent = [name for name in packages.get(extra, ()) if not _installed(name)]
        if absent:
            yield missing(
                f"extra {extra}",
                f"no {', '.join(absent)}",
                disables,
                f"pip install 'trimtab[{extra}]'",
                extra in _needed_extras(settings),
            )
        else:
            yield ok(f"extra {extra}", ", ".join(packages.get(extra, ())) or "nothing needed")


def extras() -> dict[str, list[str]]:
    """By extra, the packages that this Trimtab was installed to want with it."""
    found: dict[str, list[str]] = {}
    for line in requires("trimtab") or ():
        match = _REQUIREMENT.match(line)
        if match is not None:
            found.setdefault(match[2], []).append(match[1])
    return found


def _needed_extras(settings: Settings) -> set[str]:
    """Extras without which these settings cannot be used."""
    wanted = {
        "postgres": settings.store.startswith("postgres"),
        "kubernetes": settings.engine.startswith("kubernetes:"),
    }
    return {extra for extra, is_wanted in wanted.items() if is_wanted}


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


@check("settings", "the files that settings name")
def check_settings(settings: Settings) -> Iterator[Finding]:
    """Only of what is set."""
    yield _names(settings)
    if settings.tls_certificate:
        yield _certificate(settings)
    if settings.pools:
        yield _pools(settings)


def _names(settings: Settings) -> Finding:
    from trimtab.serve.settings import check_names

    try:
        check_names(settings)
    except TrimtabError as error:
        return missing("settings", why(error), "trimtab up", "trimtab config show says by what", needed=True)
    return ok("settings", f"engine {settings.engine.partition('://')[0]}, policy {settings.policy}")


def _certificate(settings: Settings) -> Finding:
    what = "TLS certificate"
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_certificate, settings.tls_key, password=lambda: b""
        )
    except (OSError, ValueError) as error:
        return missing(
            what,
            f"{settings.tls_certificate} with {settings.tls_key}: {why(error)}",
            "serving at all",
            "give a PEM certificate and its unencrypted key, readable to this user",
            needed=True,
        )
    return ok(what, settings.tls_certificate)


def _pools(settings: Settings) -> Finding:
    from trimtab.resize import read_pools

    try:
        count = len(read_pools(Path(settings.pools)))
    except TrimtabError as error:
        return missing("pools", why(error), "trimtab up", "mend that file", needed=True)
    return ok("pools", f"{count} in {settings.pools}")


_ROOM_WANTED, _ROOM_NEEDED = 2**30, 64 * 2**20  # bytes
_SYNCS = 5
_SLOW = 0.03  # s for a write to be on the disk
_OVER_A_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "lustre")


@check("store", "where everything is kept: reachable, its schema, room and speed of its disk")
def check_store(settings: Settings) -> Iterator[Finding]:
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
            yield _file_system_finding(folder)
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


def _file_system_finding(folder: Path) -> Finding:
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


@check("ports", "where it will listen")
def check_ports(settings: Settings) -> Iterator[Finding]:
    """Each address by being bound for a moment, never listened at."""
    yield _address("listen", settings.listen, "the API and the dashboard")
    if settings.pools:
        yield _address("agents_listen", settings.agents_listen, "the controller of pools")
        host, port = split_address(settings.agents_listen)
        join = settings.agents_join or f"{f'[{host}]' if ':' in host else host}:{port + 1}"
        yield _address("agents_join", join, "nodes that join the controller")
    if settings.agents_metrics:
        yield _address("agents_metrics", settings.agents_metrics, "the pools' /metrics")


def _address(name: str, address: str, disables: str) -> Finding:
    what = f"{name} {address}"
    host, port = split_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            trial.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and (pid := _our_listener(port)):
            return ok(what, f"a Trimtab listens there already (process {pid})", needed=True)
        variable = setting_of(name).variable
        look_at = f"ss -ltnp 'sport = :{port}' shows who listens; "
        mend = f"{look_at if error.errno == errno.EADDRINUSE else ''}{variable}=HOST:PORT names another place"
        return missing(what, why(error), disables, mend, needed=True)
    return ok(what, "free", needed=True)


def _our_listener(port: int) -> int | None:
    """The process of a Trimtab that listens there, as far as this user may see."""
    import psutil

    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                words = psutil.Process(each.pid).cmdline()
                if any(word.rpartition("/")[2] == "trimtab" for word in words[:2]):
                    return int(each.pid)
    except (psutil.Error, OSError):
        pass
    return None
