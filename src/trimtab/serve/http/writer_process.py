"""The process that writes: it takes all requests that have come, and answers when they are on the disk."""

import logging
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.core import StorageError, TrimtabError, from_plain
from trimtab.serve.companion import begun
from trimtab.serve.garbage import settled
from trimtab.serve.http.answer import Answer, crashed, failed
from trimtab.serve.http.app import parts_of, routes
from trimtab.serve.http.call import Call, Parts
from trimtab.serve.http.frames import Asked, Done, Frames, framed
from trimtab.serve.http.route import Effect, Route, noting_refusals
from trimtab.serve.log_lines import shown_log
from trimtab.serve.settings import Settings
from trimtab.store import Store, open_store

log = logging.getLogger("trimtab.serve")

_PIECE = 1 << 18
_MOST = 64
"""Requests that share a commit at most."""

_MOVED_EVERY = 1.0  # s

_APART = 0.010
"""Seconds between commits' beginnings, at least, where requests come that often."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A request with what is left to do for it, or how it ended before that."""

    call: Call
    asked: Asked
    outcome: Effect | Exception


class Hands:
    """Do what is asked of them, many things at once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._routes: dict[tuple[str, str], Route] = {
            (method, route.path): route for route in routes() for method in route.methods
        }

    def answers(self, several: list[Asked]) -> list[Done]:
        """An answer to each, all kept; one that fails fails alone."""
        taken = [self._taken(each) for each in several]
        effects = {n: each.outcome for n, each in enumerate(taken) if not isinstance(each.outcome, Exception)}
        ends: dict[int, Answer | Exception] = {}
        if effects:
            try:
                done = self._parts.desk.store.write_all(list(effects.values()))
            except TrimtabError as error:
                done = [error] * len(effects)
            ends = dict(zip(effects, done, strict=True))
        return [self._done(each, ends.get(n, each.outcome)) for n, each in enumerate(taken)]

    def _taken(self, asked: Asked) -> _Taken:
        call = Call(self._parts, asked.principal, asked.scope)
        try:
            return _Taken(
                call, asked, self._routes[asked.scope["method"], asked.route].prepared(call, asked.raw)
            )
        except Exception as error:
            return _Taken(call, asked, error)

    def _done(self, taken: _Taken, end: object) -> Done:
        number, scope = taken.asked.number, taken.call.scope
        if isinstance(end, Answer):
            return Done(number, end, None)
        try:
            with noting_refusals(taken.call):
                assert isinstance(end, Exception)
                raise end
        except TrimtabError as error:
            return Done(number, failed(error, scope), scope.get("trimtab.why"))
        except Exception:
            log.exception("request %s failed", scope["trimtab.id"])
            return Done(number, crashed(scope["trimtab.id"]), None)


def write() -> None:
    """The process itself. It ends when the API's has hung up, and all that was asked is done."""
    theirs, told = begun()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who asks is told too, and hangs up when it is done
    settings = from_plain(Settings, told)
    with shown_log(settings):
        try:
            _serve(theirs, settings)
        except TrimtabError as error:
            log.error("nothing is written beside the API: %s", error)
            sys.exit(2)


def _serve(theirs: socket.socket, settings: Settings) -> None:
    with open_store(settings.store or None) as store:
        hands = Hands(parts_of(store, settings))
        settled()
        threading.Thread(target=_move_log, args=(store,), name="log", daemon=True).start()
        theirs.sendall(framed(Done(0, Answer(200, b""), None)))
        for several in _taken_together(theirs):
            theirs.sendall(b"".join(framed(done) for done in hands.answers(several)))


def _move_log(store: Store) -> None:
    """Now and then, so that no request has to."""
    while True:
        time.sleep(_MOVED_EVERY)
        try:
            store.move_log()
        except StorageError as error:
            log.warning("the store's log stays where it is: %s", error)


def _taken_together(theirs: socket.socket) -> Iterator[list[Asked]]:
    """Whatever has come: at once where little comes, else gathered for a moment, as a commit is dear."""
    frames, waiting, before = Frames(), list[Asked](), float("-inf")
    while data := theirs.recv(_PIECE):
        waiting += frames.take(data)
        while len(waiting) < _MOST:
            left = max(0.0, before + _APART - time.monotonic())
            if not select.select([theirs], [], [], left)[0]:
                break
            data = theirs.recv(_PIECE)
            if not data:
                break
            waiting += frames.take(data)
        before = time.monotonic()
        while waiting:
            yield waiting[:_MOST]
            del waiting[:_MOST]
