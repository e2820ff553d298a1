"""The whole controller: streams, joining, decisions and what people look at, until it is told to end."""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.core import NotFoundError, StorageError, TrimtabError, home, split_address
from trimtab.kernel import file_lock, write_whole
from trimtab.resize.agent import Notice
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.fleet import PATIENCE, Fleet
from trimtab.resize.link.joining import join_server
from trimtab.resize.link.server import Server
from trimtab.resize.link.token import LIFETIME, Token, Tokens
from trimtab.resize.link.view import fleet_status
from trimtab.resize.memory import MemorySettings
from trimtab.resize.pool import Pool
from trimtab.resize.status import Status, controller_place, write_status

LISTEN = "127.0.0.1:7433"
_SHOWN = 200  # containers that `trimtab top` gets to see
_ANYWHERE = ("0.0.0.0", "::")  # nosec B104 # it is compared with, not bound

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Serving:
    """A controller that runs: where it is, how it does, and how to end it. Usable from other threads."""

    port: int
    join_address: str
    server: Server
    authority: Authority
    _stop: Callable[[], object] = field(repr=False)

    @property
    def late(self) -> int:
        """Periods that began when the one after should have."""
        return self.server.late

    def status(self, most: int | None = None) -> Status:
        """What everyone has now, or the busiest `most`."""
        with self.server.lock:
            return fleet_status(self.server.fleet, time.time(), self.server.late, most)

    def stop(self) -> None:
        """End it."""
        self._stop()


def serve(
    pools: Sequence[Pool],
    ready: Callable[[Serving], None],
    folder: Path | None = None,
    listen: str = LISTEN,
    join: str | None = None,
    seconds: float | None = None,
    patience: float = PATIENCE,
    memory: MemorySettings | None = None,
    notice: Notice = lambda grant: None,
) -> Serving:
    """Run a controller until `Serving.stop`, or for so many seconds; `ready` is called once it listens.

    `folder` holds its keys and tokens; nodes join at `join`, by default the port after that of `listen`.
    """

    def fleet(settle: bool) -> Fleet:
        return Fleet(pools, time.monotonic(), settle, patience, memory, notice)

    return asyncio.run(_serve(fleet, ready, folder or controller_folder(), listen, join, seconds))


def new_token(folder: Path | None = None, lifetime: float = LIFETIME) -> Token:
    """A token for one more node of the controller that runs with this folder."""
    place = folder or controller_folder()
    try:
        told = json.loads((place / "running.json").read_text(encoding="utf-8"))
        address, fingerprint = str(told["join"]), str(told["fingerprint"])
    except FileNotFoundError:
        raise NotFoundError("no controller runs here; start one with trimtab up --pools FILE") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StorageError(f"{place / 'running.json'} is damaged; start trimtab up anew") from None
    return Token(address, fingerprint, Tokens(place / "tokens.json").new(time.time(), lifetime))


def controller_folder() -> Path:
    """Where a controller's keys are unless it is told otherwise."""
    return home() / "controller"


async def _serve(
    make: Callable[[bool], Fleet],
    ready: Callable[[Serving], None],
    folder: Path,
    listen: str,
    join: str | None,
    seconds: float | None,
) -> Serving:
    host, _ = split_address(listen)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_alone(folder))
        authority = Authority(folder)
        server = Server(make(not authority.is_new), authority)  # with new keys nobody can have been here
        port = await server.start(listen)
        stack.push_async_callback(server.stop)
        tokens = Tokens(folder / "tokens.json")
        wanted = join or f"{_bracketed(host)}:{port + 1}"
        join_port = stack.enter_context(join_server(wanted, authority, tokens, port))
        join_host = split_address(wanted)[0]
        reached = socket.gethostname() if join_host in _ANYWHERE else join_host
        address = f"{_bracketed(reached)}:{join_port}"
        write_whole(
            folder / "running.json", json.dumps({"join": address, "fingerprint": authority.fingerprint})
        )
        stack.callback((folder / "running.json").unlink, missing_ok=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        serving = Serving(port, address, server, authority, lambda: loop.call_soon_threadsafe(ended.set))
        shows = asyncio.create_task(_show(serving))
        if seconds is not None:
            loop.call_later(seconds, ended.set)
        try:
            ready(serving)
            await server.run(ended)
        finally:
            shows.cancel()
    return serving


async def _show(serving: Serving) -> None:
    """Write down once a second what is going on; a full disk harms nobody."""
    while True:
        await asyncio.sleep(1.0)
        status = serving.status(_SHOWN)
        with contextlib.suppress(TrimtabError, OSError):
            await asyncio.to_thread(write_status, status, controller_place())


def _alone(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Two controllers with the same keys would each give away the whole pool."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return file_lock(folder / "running.lock", f"a controller runs already with the keys in {folder}")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
