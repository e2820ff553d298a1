"""Access to the store on this machine, or to the server that `--server` names, by one interface."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimtab.core import BadInputError, TrimtabError

if TYPE_CHECKING:
    from trimtab.core import Decision
    from trimtab.serve import Client, Service

HERE_ALONE = ("up", "agent", "token", "store", "demo")
"""Commands about this machine's own processes and files: refused if a server is named."""

KEEP_NOTHING = ("simulate", "collect", "calibrate", "bench", "doctor", "config")
"""Commands that use no store: they run as if no server were named."""

_PAUSE = 5.0  # s until a server that failed is tried again


@dataclass(frozen=True, slots=True)
class Server:
    """A server's URL and the token for it."""

    url: str
    token: str


_SERVER: ContextVar[Server | None] = ContextVar("server", default=None)


def server_of(url: str, token_file: Path | None, token: str, command: str | None) -> Server | None:
    """The server that a command is sent to; None if it uses no store. Refuses commands of `HERE_ALONE`."""
    if command in KEEP_NOTHING:
        return None
    if command is not None and command in HERE_ALONE:
        raise _here_alone(command)
    if token_file is None:
        return Server(url, token)
    try:
        return Server(url, token_file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(f"the token in {token_file} cannot be read: {reason}") from None


def here_alone(*names: str) -> Callable[[typer.Context], None]:
    """A command group's callback that refuses these subcommands if a server is named."""

    def check(context: typer.Context) -> None:
        if not is_here() and context.invoked_subcommand in names:
            raise _here_alone(f"{context.info_name} {context.invoked_subcommand}")

    return check


def _here_alone(command: str) -> TrimtabError:
    return BadInputError(
        f"trimtab {command} works on this machine only; run it where the server runs, "
        f"without --server and TRIMTAB_SERVER"
    )


def use_server(server: Server | None) -> None:
    """Send commands to that server from now on; None: use the store here."""
    _SERVER.set(server)


def is_here() -> bool:
    """Whether commands use the store here."""
    return _SERVER.get() is None


@contextmanager
def place() -> "Iterator[Service | Client]":
    """All operations, on the server or on the store here."""
    server = _SERVER.get()
    if server is not None:
        from trimtab.serve import Client

        with Client(server.url, server.token) as client:
            yield client
        return
    from trimtab.serve import LOCAL, Backend, Service
    from trimtab.store import open_store

    with open_store() as store:
        yield Service(Backend(store), LOCAL)


def check_place() -> None:
    """Check, before long work, that the store opens, or that the server answers and accepts the token."""
    with place() as at:
        if not is_here():
            at.decisions.page(1)


@dataclass(frozen=True, slots=True)
class _PendingOutcome:
    decision: str
    measured: Mapping[str, float]
    note: str


class LedgerQueue:
    """Writes decisions and outcomes to the ledger, in order.

    A store on this machine that fails ends the command at once. Entries that a server does not accept wait
    and are sent again before later ones; so results are printed all the same, and `require` then raises.
    With `first`, the first decision must be accepted: nothing is measured before it.
    """

    def __init__(self, first: bool = False) -> None:
        self._waiting: deque[Decision | _PendingOutcome] = deque()
        self._ids: dict[str, str] = {}
        self._first = first
        self._failed = -math.inf
        self._error: TrimtabError | None = None

    def record(self, decision: "Decision") -> "Decision":
        """Record a decision, and return it with the id that the ledger gave it."""
        self._waiting.append(decision)
        self._send()
        return replace(decision, id=self.id_of(decision.id) or decision.id)

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str = "") -> None:
        """Record the measured result of a decision."""
        self._waiting.append(_PendingOutcome(id, measured, note))
        self._send()

    def id_of(self, id: str) -> str:
        """The id under which that decision is recorded; "" if it is not."""
        return self._ids.get(id, "")

    @property
    def unsent(self) -> str:
        """An error message about entries that the server has not accepted; "" if there are none."""
        if not self._waiting:
            return ""
        outcomes = sum(isinstance(entry, _PendingOutcome) for entry in self._waiting)
        counts = ((len(self._waiting) - outcomes, "decision"), (outcomes, "outcome"))
        entries = " and ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n)
        return f"{entries} could not be recorded: {self._error}"

    def require(self) -> None:
        """Raise, after everything is printed and written, if an entry is not recorded."""
        if self.unsent:
            raise TrimtabError(self.unsent)

    def _send(self) -> None:
        if time.monotonic() - self._failed < _PAUSE:
            return
        try:
            with place() as at:
                while self._waiting:
                    entry = self._waiting[0]
                    if isinstance(entry, _PendingOutcome):
                        id = self._ids.get(entry.decision, entry.decision)
                        at.decisions.record_outcome(id, entry.measured, entry.note)
                    else:
                        id = at.decisions.record(entry).id
                        self._ids |= {entry.id: id, id: id}
                    self._waiting.popleft()
        except TrimtabError as error:
            if is_here() or (self._first and not self._ids):
                self._waiting.clear()
                raise
            self._failed, self._error = time.monotonic(), error
