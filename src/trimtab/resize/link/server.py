"""The controller: a gRPC stream for every node, joining, and one decision for all nodes every 100 ms.

Periods follow the monotonic clock. A node's identity is that of its certificate. The stream of a node that
sends an invalid message is closed with the reason; other nodes are not affected.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from trimtab.core import Clock, NotFoundError, RealClock, StorageError, TrimtabError, home, split_address
from trimtab.kernel import file_lock, write_whole
from trimtab.resize.agent import Notice
from trimtab.resize.allocation import MemorySettings
from trimtab.resize.link.certificates import LIFETIME, Authority, JoinToken, JoinTokens
from trimtab.resize.link.fleet import PATIENCE, NodeFleet, NodeSession, fleet_status
from trimtab.resize.link.joining import bracketed, join_server
from trimtab.resize.link.wire import (
    MOST_BYTES,
    PROCEDURE,
    SERVICE,
    Hello,
    MemoryConfirmation,
    MemoryRequest,
    MessageStream,
    Report,
    WireError,
)
from trimtab.resize.member import PERIOD
from trimtab.resize.pool import Pool
from trimtab.resize.status import PoolStatus, controller_file, write_status

_MOST_MESSAGES = 10_000  # warnings in the log
_GREETING = 5.0  # s in which a new stream has to say hello
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.so_reuseport", 0),  # a taken port is an error, not shared
)

LISTEN = "127.0.0.1:7433"
_SHOWN = 200  # containers in `trimtab top`
_ANYWHERE = ("0.0.0.0", "::")  # nosec B104 # compared with, not bound

log = logging.getLogger(__name__)


class ControllerServer:
    """Runs a fleet: receives reports, decides every period, sends orders."""

    def __init__(self, fleet: NodeFleet, authority: Authority, clock: Clock | None = None) -> None:
        self.fleet = fleet
        self.late = 0  # periods that began after the next one was due
        self.lock = threading.Lock()  # around the fleet, for readers in other threads
        self._authority = authority
        self._clock = clock or RealClock()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._logged: set[tuple[str, str]] = set()
        self._server: Any = None

    async def start(self, address: str) -> int:
        """Listen at "host:port"; returns the port, where 0 is any."""
        split_address(address)
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {PROCEDURE: handler}),)
        )
        keys = [(self._authority.server_key, self._authority.server_certificate)]
        credentials = grpc.ssl_server_credentials(keys, self._authority.certificate, require_client_auth=True)
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise StorageError(
                f"the controller cannot listen at {address}: it is taken, or not an address of this machine"
            )
        await self._server.start()
        return int(port)

    async def run(self, ended: asyncio.Event) -> None:
        """Decide every period until `ended`."""
        due = last = self._clock.monotonic()
        while not ended.is_set():
            due += PERIOD
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), max(0.0, due - self._clock.monotonic()))
            now = self._clock.monotonic()
            if now - due >= PERIOD:
                self.late += int((now - due) / PERIOD)
                due = now
            with self.lock:
                self.fleet.decide(max(now - last, 1e-3), now)
            last = now

    async def stop(self) -> None:
        """Close all streams."""
        await self._server.stop(grace=None)

    async def _attend(self, requests: Any, context: Any) -> None:
        """Serve one node's stream."""
        name, certificate = _identity(context)
        try:
            if not self._authority.knows(name, certificate):
                raise WireError("this certificate was replaced by a newer one of the same name; join again")
            messages = MessageStream(secrets.randbits(63) | 1)
            first = await asyncio.wait_for(context.read(), _GREETING)
            if first is grpc.aio.EOF or not isinstance(messages.unpack(first), Hello):
                raise WireError("a stream must begin with hello")
            await self._exchange(name, messages, context)
        except WireError as error:
            self._warn_once(name, str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "a stream must begin with hello")

    async def _exchange(self, name: str, messages: MessageStream, context: Any) -> None:
        """Register, then receive and send messages; a node's new stream ends its former one."""
        has_mail = asyncio.Event()
        with self.lock:
            session = self.fleet.register(name, messages, self._clock.monotonic(), has_mail.set)
        former = self._streams.get(name)
        if former is not None:
            former.cancel()
        reader = asyncio.ensure_future(self._read(session, context))
        writer = asyncio.ensure_future(_write(session, has_mail, context))
        self._streams[name] = reader
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.cancelled():
                reader.result()
            elif reader.cancelled():
                raise WireError("this node has opened another stream")
        finally:
            session.wake = lambda: None
            reader.cancel()
            writer.cancel()
            if self._streams.get(name) is reader:
                del self._streams[name]

    async def _read(self, session: NodeSession, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            message = session.messages.unpack(data)
            with self.lock:
                now = self._clock.monotonic()
                if isinstance(message, Report):
                    self.fleet.report(session, message, now)
                elif isinstance(message, MemoryRequest):
                    self.fleet.request_memory(session, message, now)
                elif isinstance(message, MemoryConfirmation):
                    self.fleet.confirm(session, message, now)
                else:
                    raise WireError(f"an agent sends no {type(message).__name__}")

    def _warn_once(self, node: str, reason: str) -> None:
        if (node, reason) not in self._logged and len(self._logged) < _MOST_MESSAGES:
            self._logged.add((node, reason))
            log.warning("%s: %s; its stream is closed", node, reason)


def _identity(context: Any) -> tuple[str, bytes]:
    """A node's name and certificate; TLS has verified that the authority signed it."""
    data = context.auth_context()
    return data["x509_common_name"][0].decode(), data["x509_pem_cert"][0]


async def _write(session: NodeSession, has_mail: asyncio.Event, context: Any) -> None:
    while True:
        await has_mail.wait()
        has_mail.clear()
        while session.outbox:
            await context.write(session.outbox.pop(0))


@dataclass(slots=True, eq=False)
class RunningController:
    """A running controller: its addresses, its status and how to stop it. Usable from other threads."""

    port: int
    join_address: str
    server: ControllerServer
    authority: Authority
    _stop: Callable[[], object] = field(repr=False)

    @property
    def late(self) -> int:
        """Periods that began after the next one was due."""
        return self.server.late

    def status(self, most: int | None = None) -> PoolStatus:
        """Status of all containers, or of the busiest `most`."""
        with self.server.lock:
            return fleet_status(self.server.fleet, time.time(), self.server.late, most)

    def stop(self) -> None:
        self._stop()


def serve(
    pools: Sequence[Pool],
    ready: Callable[[RunningController], None],
    folder: Path | None = None,
    listen: str = LISTEN,
    join: str | None = None,
    seconds: float | None = None,
    patience: float = PATIENCE,
    memory: MemorySettings | None = None,
    notice: Notice = lambda grant: None,
) -> RunningController:
    """Run a controller until `stop`, or for so many seconds; `ready` is called once it listens.

    `folder` holds its keys and tokens; nodes join at `join`, by default the port after that of `listen`.
    """

    def fleet(settle: bool) -> NodeFleet:
        return NodeFleet(pools, time.monotonic(), settle, patience, memory, notice)

    return asyncio.run(_serve(fleet, ready, folder or controller_folder(), listen, join, seconds))


def new_token(folder: Path | None = None, lifetime: float = LIFETIME) -> JoinToken:
    """A token for one more node of the controller that runs with this folder."""
    folder = folder or controller_folder()
    try:
        data = json.loads((folder / "running.json").read_text(encoding="utf-8"))
        address, fingerprint = str(data["join"]), str(data["fingerprint"])
    except FileNotFoundError:
        raise NotFoundError("no controller runs here; start one with trimtab up --pools FILE") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StorageError(f"{folder / 'running.json'} is damaged; start trimtab up again") from None
    return JoinToken(address, fingerprint, JoinTokens(folder / "tokens.json").new(lifetime))


def controller_folder() -> Path:
    """Default folder of a controller's keys."""
    return home() / "controller"


async def _serve(
    make: Callable[[bool], NodeFleet],
    ready: Callable[[RunningController], None],
    folder: Path,
    listen: str,
    join: str | None,
    seconds: float | None,
) -> RunningController:
    host, _ = split_address(listen)
    async with contextlib.AsyncExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Two controllers with the same keys would each give away the whole pool.
        refusal = f"a controller already runs with the keys in {folder}"
        stack.enter_context(file_lock(folder / "running.lock", refusal))
        authority = Authority(folder)
        # With new keys no agent can have joined before, and nothing has to settle.
        server = ControllerServer(make(not authority.is_new), authority)
        port = await server.start(listen)
        stack.push_async_callback(server.stop)
        tokens = JoinTokens(folder / "tokens.json")
        join = join or f"{bracketed(host)}:{port + 1}"
        join_port = stack.enter_context(join_server(join, authority, tokens, port))
        join_host = split_address(join)[0]
        reached = socket.gethostname() if join_host in _ANYWHERE else join_host
        address = f"{bracketed(reached)}:{join_port}"
        write_whole(
            folder / "running.json", json.dumps({"join": address, "fingerprint": authority.fingerprint})
        )
        stack.callback((folder / "running.json").unlink, missing_ok=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        serving = RunningController(
            port, address, server, authority, lambda: loop.call_soon_threadsafe(ended.set)
        )
        shows = asyncio.create_task(_show(serving))
        if seconds is not None:
            loop.call_later(seconds, ended.set)
        try:
            ready(serving)
            await server.run(ended)
        finally:
            shows.cancel()
    return serving


async def _show(serving: RunningController) -> None:
    """Write the status once a second; errors such as a full disk are ignored."""
    while True:
        await asyncio.sleep(1.0)
        status = serving.status(_SHOWN)
        with contextlib.suppress(TrimtabError, OSError):
            await asyncio.to_thread(write_status, status, controller_file())
