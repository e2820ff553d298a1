"""Group commit: one sync of the disk for all writes that arrive at the same moment.

SQLite has one writer at a time, and a commit waits for the disk. So writers queue for one connection. The
writer whose turn it is runs its own effect, then those queued behind it, each within a savepoint of its own,
and commits for all of them; only then do their writes return. Meanwhile, the next writers queue.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction

from trimtab.core import StorageError
from trimtab.store.statements import savepoint

T = TypeVar("T")

_MOST = 256
"""Writers that share a commit at most."""

_LONGEST = 0.020
"""Seconds after which a group takes nobody more in."""


@dataclass(slots=True, eq=False)
class _Writer:
    """Someone in the line, woken when done or given the turn; without an `effect`, only the turn will do."""

    effect: Callable[[Connection], Any] | None
    woken: threading.Event = field(default_factory=threading.Event)
    has_turn: bool = False
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class _Group:
    """Writers who share a transaction; `failed` is why none of their writes was kept."""

    connection: Connection
    transaction: RootTransaction
    began: float
    members: list[_Writer] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    failed: Exception | None = None

    @property
    def full(self) -> bool:
        return len(self.members) >= _MOST or time.monotonic() - self.began > _LONGEST


class GroupCommit:
    """The line of those who write, and the transaction they share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._line: deque[_Writer] = deque()
        self._taken = False
        self._open: _Group | None = None

    def run(self, effect: Callable[[Connection], T]) -> T:
        """Run `effect` and return its result once it is on the disk; another thread may run it."""
        me = _Writer(effect)
        self._line_up(me)
        if me.has_turn:
            group = self._group()
            try:
                self._do(group, me)
            finally:
                self._go_on(group)
            _await(group)
        if me.error is not None:
            raise me.error
        result: T = me.result
        return result

    def run_all(self, effects: Sequence[Callable[[Connection], T]]) -> list[T | Exception]:
        """Result or exception of each effect, once all are on the disk; one that fails fails alone."""
        writers = [_Writer(effect) for effect in effects]
        self._line_up(_Writer(None))
        group = self._group()
        try:
            for writer in writers:
                if self._open is group:
                    self._do(group, writer)
                else:
                    writer.error = StorageError("a write of the same moment failed, and this with it")
        finally:
            self._go_on(group)
        group.over.wait()
        return [writer.result if writer.error is None else writer.error for writer in writers]

    @contextmanager
    def turn(self) -> Iterator[Connection]:
        """A connection within a savepoint; when the block has ended without an error, it is on the disk."""
        me = _Writer(None)
        self._line_up(me)
        group = self._group()
        try:
            with savepoint(group.connection) as connection:
                yield connection
        except BaseException as error:
            self._look(group, error)
            raise
        finally:
            group.members.append(me)
            # What made it fail may be a write of the same group, which counts only once that is kept.
            self._go_on(group)
            _await(group)

    def _line_up(self, me: _Writer) -> None:
        """Wait until it is my turn, or somebody has done it for me."""
        with self._lock:
            if not self._taken:
                self._taken = me.has_turn = True
                return
            self._line.append(me)
        try:
            me.woken.wait()
        except BaseException:
            with self._lock:
                if me in self._line:
                    self._line.remove(me)
            if me.has_turn:
                self._pass_on()
            raise

    def _group(self) -> _Group:
        """The group that is open, or a new one."""
        try:
            if self._open is None:
                connection = self._engine.connect()
                try:
                    self._open = _Group(connection, connection.begin(), time.monotonic())
                except BaseException:
                    connection.close()
                    raise
            return self._open
        except BaseException:
            self._pass_on()
            raise

    def _do(self, group: _Group, writer: _Writer) -> None:
        assert writer.effect is not None
        group.members.append(writer)
        try:
            with savepoint(group.connection) as connection:
                writer.result = writer.effect(connection)
        except Exception as error:
            writer.error = error
            self._look(group, error)
        except BaseException as error:
            self._look(group, error)
            writer.error = StorageError("a write was interrupted, and nothing of it was kept; repeat it")
            raise

    def _look(self, group: _Group, error: BaseException) -> None:
        """End the group where an error of one has undone the writes of all."""
        if not getattr(group.connection.connection.dbapi_connection, "in_transaction", False):
            self._close(group, error)

    def _go_on(self, group: _Group) -> None:
        """Do what others lined up for, commit for all, and pass the turn on."""
        try:
            while self._open is group and not group.full:
                with self._lock:
                    follower = self._line.popleft() if self._line else None
                if follower is None:
                    break
                if follower.effect is None:
                    follower.has_turn = True
                    follower.woken.set()
                    return
                self._do(group, follower)
            if self._open is group:
                self._commit(group)
        except BaseException as error:
            if self._open is group:
                self._close(group, error)
            self._pass_on()
            raise
        self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            follower = self._line.popleft() if self._line else None
            self._taken = follower is not None
            if follower is not None:
                follower.has_turn = True
                follower.woken.set()

    def _commit(self, group: _Group) -> None:
        try:
            group.transaction.commit()
        except Exception as error:
            self._close(group, error)
        else:
            self._close(group, None)

    def _close(self, group: _Group, error: BaseException | None) -> None:
        self._open = None
        if error is not None and not isinstance(error, Exception):
            error = StorageError("a commit was interrupted; look what is there before you go on")
        group.failed = error
        for member in group.members:
            member.error = group.failed or member.error
        try:
            if group.failed is not None:
                group.connection.invalidate()
            group.connection.close()
        finally:
            group.over.set()
            for member in group.members:
                member.woken.set()


def _await(group: _Group) -> None:
    group.over.wait()
    if group.failed is not None:
        raise group.failed
