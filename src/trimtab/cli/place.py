"""Where commands keep things and look them up: the store here, or the server that `--server` names."""

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
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(f"the token in {token_file} cannot be read: {why}") from None


def here_alone(*names: str) -> Callable[[typer.Context], None]:
    """A group's callback that refuses these subcommands if a server is named."""

    def check(context: typer.Context) -> None:
        if not is_here() and context.invoked_subcommand in names:
            raise _here_alone(f"{context.info_name} {context.invoked_subcommand}")

    return check


def _here_alone(command: str) -> TrimtabError:
    return BadInputError(
        f"trimtab {command} works with this machine alone; run it where the server runs, "
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
    """All operations, of the server or here: the same names with the same results."""
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
    """Check before long work that the store opens, or that the server answers and knows the token."""
    with place() as at:
        if not is_here():
            at.decisions.page(1)


@dataclass(frozen=True, slots=True)
class _PendingOutcome:
    decision: str
    measured: Mapping[str, float]
    note: str


class LedgerQueue:
    """Decisions and outcomes on their way into the ledger.

    Here, a store that fails ends the command at once. What a server does not take waits, and is offered again
    before what comes next; so a result is printed all the same, and `require` then says what is not kept.
    With `first`, the first decision has to be taken: nothing is measured before it.
    """

    def __init__(self, first: bool = False) -> None:
        self._waiting: deque[Decision | _PendingOutcome] = deque()
        self._ids: dict[str, str] = {}
        self._first = first
        self._failed = -math.inf
        self._why: TrimtabError | None = None

    def record(self, decision: "Decision") -> "Decision":
        """Keep a decision and return it as it is kept, which may be under another id."""
        self._waiting.append(decision)
        self._offer()
        return replace(decision, id=self.id_of(decision.id) or decision.id)

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str = "") -> None:
        """Keep what happened after a decision."""
        self._waiting.append(_PendingOutcome(id, measured, note))
        self._offer()

    def id_of(self, id: str) -> str:
        """The id under which that decision is kept; "" if it is not kept."""
        return self._ids.get(id, "")

    @property
    def left(self) -> str:
        """A sentence about what the server has not taken; "" if it has taken all."""
        if not self._waiting:
            return ""
        decisions = sum(not isinstance(each, _PendingOutcome) for each in self._waiting)
        counts = ((decisions, "decision"), (len(self._waiting) - decisions, "outcome"))
        what = " and ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n)
        return f"{what} could not be kept: {self._why}"

    def require(self) -> None:
        """Raise, after everything is printed and written, if something is not kept."""
        if self.left:
            raise TrimtabError(self.left)

    def _offer(self) -> None:
        if time.monotonic() - self._failed < _PAUSE:
            return
        try:
            with place() as at:
                while self._waiting:
                    self._give(at, self._waiting[0])
                    self._waiting.popleft()
        except TrimtabError as error:
            if is_here() or (self._first and not self._ids):
                self._waiting.clear()  # the error says so
                raise
            self._failed, self._why = time.monotonic(), error

    def _give(self, at: "Service | Client", entry: "Decision | _PendingOutcome") -> None:
        if isinstance(entry, _PendingOutcome):
            id = self._ids.get(entry.decision, entry.decision)
            at.decisions.record_outcome(id, entry.measured, entry.note)
            return
        kept = at.decisions.record(entry).id
        self._ids |= {entry.id: kept, kept: kept}
