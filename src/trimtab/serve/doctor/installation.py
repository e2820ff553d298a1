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
from importlib.metadata import distributions, requires
from pathlib import Path
from statistics import median

from trimtab.core import TrimtabError, format_bytes, format_duration, home, split_address
from trimtab.serve.doctor.examination import Finding, check, missing, ok, warning, why
from trimtab.serve.settings import Settings, check_names, setting_of

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
"""What each extra's packages are needed for."""

_REQUIREMENT = re.compile(r'([\w.-]+)[^;]*;.*extra == ["\']([\w-]+)["\']')
_OLDEST_PYTHON = (3, 11)


@check("python", "this interpreter and the packages of each extra")
def check_python(settings: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _OLDEST_PYTHON:
        yield ok("Python", version, needed=True)
    else:
        yield missing("Python", version, "everything", "install Python 3.11 or later", needed=True)
    needed = {
        "postgres": settings.store.startswith("postgres"),
        "kubernetes": settings.engine.startswith("kubernetes:"),
    }
    installed = {distribution.name.lower().replace("_", "-") for distribution in distributions()}
    packages = extras()
    for extra, disables in EXTRAS.items():
        names = packages.get(extra, [])
        absent = [name for name in names if name.lower().replace("_", "-") not in installed]
        if absent:
            mend = f"pip install 'trimtab[{extra}]'"
            seen = f"no {', '.join(absent)}"
            yield missing(f"extra {extra}", seen, disables, mend, needed.get(extra, False))
        else:
            yield ok(f"extra {extra}", ", ".join(names) or "nothing needed")


def extras() -> dict[str, list[str]]:
    """Packages of each extra, from the metadata of the installed Trimtab."""
    packages: dict[str, list[str]] = {}
    for line in requires("trimtab") or ():
        if (match := _REQUIREMENT.match(line)) is not None:
            packages.setdefault(match[2], []).append(match[1])
    return packages


@check("settings", "the files that settings name")
def check_settings(settings: Settings) -> Iterator[Finding]:
    try:
        check_names(settings)
        yield ok("settings", f"engine {settings.engine.partition('://')[0]}, policy {settings.policy}")
    except TrimtabError as error:
        mend = "trimtab config show says where it is set"
        yield missing("settings", why(error), "trimtab up", mend, needed=True)
    if settings.tls_certificate:
        what = "TLS certificate"
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.tls_certificate, settings.tls_key, password=lambda: b""
            )
            yield ok(what, settings.tls_certificate)
        except (OSError, ValueError) as error:
            seen = f"{settings.tls_certificate} with {settings.tls_key}: {why(error)}"
            mend = "give a PEM certificate and its unencrypted key, readable to this user"
            yield missing(what, seen, "serving at all", mend, needed=True)
    if settings.pools:
        from trimtab.resize import read_pools

        try:
            yield ok("pools", f"{len(read_pools(Path(settings.pools)))} in {settings.pools}")
        except TrimtabError as error:
            yield missing("pools", why(error), "trimtab up", "correct that file", needed=True)


_ROOM_WANTED, _ROOM_NEEDED = 2**30, 64 * 2**20  # bytes
_SYNCS = 5
_SLOW = 0.03  # s for a write to be on the disk
_NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "lustre")


@check("store", "the store: reachable, its schema, room and speed of its disk")
def check_store(settings: Settings) -> Iterator[Finding]:
    """The database, then the folder that holds it, or Trimtab's home if it is elsewhere."""
    from trimtab.store import look_at_store

    folder = home()
    try:
        store = look_at_store(settings.store or None)
    except TrimtabError as error:
        disables = "everything that is kept: trimtab up, the ledger, jobs"
        mend = "start the database, or name another with TRIMTAB_STORE"
        yield missing("store", why(error), disables, mend, needed=True)
    else:
        seen = f"{store.name}, schema {store.revision}"
        if store.revision is None:
            seen = f"{store.name}: not there yet; it is made at the first use"
            if store.served:
                disables = (
                    "everything that is kept: trimtab up served a store there, and will not make a new one"
                )
                mend = "put it back, or trimtab store restore FILE, or trimtab up --new-store"
                yield missing("store", f"{store.name} is missing or empty", disables, mend, needed=True)
                return
        elif store.revision != store.newest:
            seen += f"; back it up: opening it migrates it to {store.newest}"
        yield ok("store", seen, needed=True)
        if store.path is not None:
            folder = store.path.parent
            yield _file_system(_nearest(folder))
    yield from _disk(_nearest(folder))


def _disk(folder: Path) -> Iterator[Finding]:
    """Free space, and the time until a write is on the disk."""
    room = shutil.disk_usage(folder).free
    seen = f"{format_bytes(room)} free in {folder}"
    disables, mend = "writes, once it is full", f"free some space below {folder}"
    if room < _ROOM_NEEDED:
        yield missing("room", seen, disables, mend, needed=True)
    elif room < _ROOM_WANTED:
        yield warning("room", seen, disables, mend)
    else:
        yield ok("room", seen)
    took = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # it has no name and goes with its handle
            for _ in range(_SYNCS):
                start = time.perf_counter()
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - start)
    except OSError as error:
        mend = f"chown {os.geteuid()} {folder}, or name another folder with TRIMTAB_HOME"
        yield missing("writing", f"{folder}: {why(error)}", "everything that is kept", mend, needed=True)
        return
    seen = f"{format_duration(median(took))} until a write is on the disk (median of {_SYNCS})"
    if median(took) > _SLOW:
        yield warning("writing", seen, "quick answers to writes", "keep the store on a faster disk")
    else:
        yield ok("writing", seen, needed=True)


def _file_system(folder: Path) -> Finding:
    """File system of the longest mount point above a folder."""
    longest, kind = -1, ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        point = head.split()[4].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= longest:
            longest, kind = len(point), tail.split()[0]
    if kind in _NETWORK_FILE_SYSTEMS:
        disables = "SQLite's promise that a finished write lasts"
        mend = "keep the file on a local disk, or use PostgreSQL: TRIMTAB_STORE=postgresql://…"
        return warning("file system", f"{kind}, over a network", disables, mend)
    return ok("file system", kind or "unknown")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists, in which it would be made."""
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


@check("ports", "the addresses to listen at")
def check_ports(settings: Settings) -> Iterator[Finding]:
    """Each address is bound for a moment, and never listened at."""
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
        mend = f"{setting_of(name).variable}=HOST:PORT names another address"
        if error.errno == errno.EADDRINUSE:
            mend = f"ss -ltnp 'sport = :{port}' shows who listens; {mend}"
        return missing(what, why(error), disables, mend, needed=True)
    return ok(what, "free", needed=True)


def _our_listener(port: int) -> int | None:
    """Id of a Trimtab process that listens at a port, as far as this user may see."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if listens and connection.pid:
                words = psutil.Process(connection.pid).cmdline()
                if any(word.rpartition("/")[2] == "trimtab" for word in words[:2]):
                    return int(connection.pid)
    except (psutil.Error, OSError):
        pass
    return None
