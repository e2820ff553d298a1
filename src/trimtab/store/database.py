"""The store's database: its address, what its failures mean, its schema revision, and transactions on it."""

import copy
import hashlib
import json
import logging
import math
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import (
    JSON,
    URL,
    Connection,
    Dialect,
    Engine,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    text,
    update,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.pool import PoolProxiedConnection

from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    StorageError,
    TrimtabError,
    home,
    within_grammar,
)
from trimtab.store.entities import DamagedError, FullError, MissingStoreError
from trimtab.store.group_commit import DriverConnection, GroupCommit, execute, savepoint
from trimtab.store.tables import VERSION_TABLE, metadata

T = TypeVar("T")

BUSY_TIMEOUT = 30.0
"""Seconds a writer waits for other writers before it gives up."""

CONNECT_TIMEOUT = 10
"""Seconds to wait for PostgreSQL to answer."""

REVISIONS = ("0001", "0002", "0003")
"""Every schema revision, oldest first; the last one is the code's own."""

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_URL_HINT = "write sqlite:///path/to/file or postgresql://user@host/database"
# Each thread holds one connection at most, so callers bound the pool by bounding their threads.
_UNBOUNDED = -1
_MOST_SHAPES = 500
_LOG_PAGES = 4000  # of SQLite's write-ahead log, 16 MiB
_LEAST_FREE = 1 << 20  # bytes
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Address:
    """A database's URL in SQLAlchemy's form; `path` is the file of a SQLite database."""

    url: URL
    path: Path | None

    @property
    def name(self) -> str:
        if self.path is not None:
            return str(self.path)
        url = self.url
        return URL.create(
            "postgresql", url.username, None, url.host, url.port, url.database
        ).render_as_string()

    def without_secrets(self, message: str) -> str:
        """`message` with every password of this address struck out."""
        in_query = self.url.query.get("password", ())
        for secret in (self.url.password, *([in_query] if isinstance(in_query, str) else in_query)):
            if secret:
                message = message.replace(str(secret), "***")
        return message


def resolve(url: str | None) -> Address:
    """The address that `url`, `$TRIMTAB_STORE` or the default file stands for."""
    url = url or os.environ.get("TRIMTAB_STORE")
    if not url:
        return _file_address(home() / "trimtab.sqlite")
    # An unreadable URL is named by its scheme alone: a password may stand anywhere after it.
    scheme = re.match(r"[\w+.-]+(?=://)", url)
    if scheme is None:
        raise StorageError(f"the store's URL has no scheme; {_URL_HINT}")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StorageError(f"the store's URL {scheme[0]}://… cannot be read; {_URL_HINT}") from None
    if parsed.drivername == "sqlite":
        if parsed.host or parsed.query or parsed.database in (None, "", ":memory:"):
            raise StorageError(
                "the store's sqlite URL should name a file and nothing else: three slashes and a path, "
                "as in sqlite:///trimtab.sqlite or sqlite:////var/lib/trimtab.sqlite"
            )
        return _file_address(Path(str(parsed.database)))
    if parsed.drivername not in _POSTGRESQL:
        raise StorageError(f"a store cannot be kept at {scheme[0]}://…; {_URL_HINT}")
    if "@" in f"{parsed.host}{parsed.database}":
        raise StorageError(
            "the store's postgresql URL has more than one @; write the ones in its user or password as %40"
        )
    return Address(parsed.set(drivername="postgresql+psycopg"), None)


def _file_address(path: Path) -> Address:
    # Made absolute now, so that a later change of directory does not move the store.
    path = path.absolute()
    return Address(URL.create("sqlite", database=str(path)), path)


_ELSEWHERE = "point TRIMTAB_HOME or TRIMTAB_STORE at a place that can be written"
_FULL = "the disk that holds the store {name} is full; free some space, nothing was kept"
_CANNOT_OPEN = f"the store {{name}} cannot be opened for reading and writing; {_ELSEWHERE}"
_DAMAGED = "the store {name} is damaged; move the file away and restore it from a backup"
_NOT_A_DATABASE = "the store {name} is not a SQLite database; move the file away or name another"
_FAILED = "the store {name} failed: {reason}"
_PAGES_DAMAGED = "the store {name} is damaged ({reason}); restore it from a backup"
_REPLACED = (
    "the file of the store {name} was removed or replaced while it was open, and nothing was kept; "
    "put it back or restore a backup, then start again"
)
_UNREACHABLE = (
    "the store {name} cannot be reached ({reason}); check that the server runs and the URL is right"
)
_SQLITE_SENTENCES = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: f"the store {{name}} cannot be written: it is read-only; {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_PERM: _CANNOT_OPEN,
    sqlite3.SQLITE_NOTADB: _NOT_A_DATABASE,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_BUSY: f"another process kept the store {{name}} busy for {BUSY_TIMEOUT:.0f} s; "
    "try again when it has finished",
}
_POSTGRESQL_SENTENCES = {
    "25006": "the store {name} cannot be written: PostgreSQL is in read-only mode; name its primary server",
    "42501": "this user may not use the store {name}; make it the owner of the database or of its tables",
    "53100": _FULL,
    "XX001": _PAGES_DAMAGED,
    "XX002": _PAGES_DAMAGED,
}


_ERRORS: Mapping[str, type[StorageError]] = {
    _FULL: FullError,
    _DAMAGED: DamagedError,
    _NOT_A_DATABASE: DamagedError,
    _PAGES_DAMAGED: DamagedError,
}


class ConflictError(StorageError):
    """A row breaks a constraint: its id is taken, or the row it refers to is missing."""


def storage_error(error: DBAPIError, address: Address) -> StorageError:
    """The driver's error as one sentence for the user."""
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    reason = address.without_secrets(" ".join(lines[0].split()).rstrip(".;:"))
    if isinstance(error, IntegrityError):
        return ConflictError(f"the store {address.name} refused a row: {reason}")
    if address.path is not None:
        # The low byte is the primary code; the rest tells variants of it apart.
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        # On a full disk, SQLite's shared-memory file fails to grow with an I/O error of its own.
        if code == sqlite3.SQLITE_IOERR and _is_full(address.path.parent):
            code = sqlite3.SQLITE_FULL
        sentence = _SQLITE_SENTENCES.get(
            code, "the store {name} failed: {reason}; check the disk and the file"
        )
    else:
        state = getattr(error.orig, "sqlstate", None)
        # A connection that was never made or has been cut has no state, only a reason.
        cut = state is None or error.connection_invalidated
        usual = _UNREACHABLE if cut else f"{_FAILED}; check the server's log"
        sentence = _POSTGRESQL_SENTENCES.get(state or "", usual)
    return _ERRORS.get(sentence, StorageError)(sentence.format(name=address.name, reason=reason))


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False


_encode_json = json.JSONEncoder(allow_nan=False).encode
decode_json = json.loads

# Pages put a few columns beside JSON that is there already: to encode these one by one costs a tenth of it.
json_string = json.encoder.encode_basestring_ascii
"""A text as JSON."""


def encode_json(value: Any) -> str:
    """`value` as JSON that PostgreSQL accepts and that keeps every float but NaN: infinity is 1e999."""
    try:
        return _encode_json(value)
    except ValueError:
        return within_grammar(json.dumps(value))


def json_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else encode_json(value)


def is_storable(value: Any) -> bool:
    """Whether both databases can keep `value` in a column: no text with NUL or half characters."""
    return not isinstance(value, str) or _UNSTORABLE.search(value) is None


def require_storable(value: Any, where: str) -> None:
    """Refuse a value that the databases cannot keep, naming it by `where`."""
    if not is_storable(value):
        raise BadInputError(f"{where} holds a character that cannot be stored; use plain text")


class CompiledStatement:
    """A statement compiled once for one dialect; values are given by the names of its `bindparam`s."""

    def __init__(self, statement: Select[Any] | Insert | Update, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._dialect = dialect
        self._sql = str(compiled)
        # SQLAlchemy puts in numbers of its own, such as an offset of nothing.
        self._own = {name: value for name, value in compiled.params.items() if value is not None}
        self._order: list[str] | None = getattr(compiled, "positiontup", None)

    def rows(self, connection: DriverConnection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows, as the driver gives them; none for a statement that returns none."""
        given = {**values, **self._own}
        ordered = given if self._order is None else [given[name] for name in self._order]
        return execute(connection, self._dialect, self._sql, ordered)


class _ThreadState(threading.local):
    """The transaction that a thread is in, and the connection it reads with outside of one."""

    connection: Connection | None = None
    reads: DBAPIConnection | None = None


class Database:
    """A pool of connections to the store's database, with one transaction at a time in each thread."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._reader = _sqlite_engine(address) if address.path else _postgresql_engine(address)
        self._writer = self._reader.execution_options(writes=True)
        self._commits = GroupCommit(self._writer) if address.path else None
        self._here = _ThreadState()
        self._prepared: dict[Hashable, CompiledStatement] = {}
        self._require: Callable[[Connection], object] | None = None
        self._kept: list[PoolProxiedConnection] = []
        self.damage: DamagedError | None = None

    def under(self, require: Callable[[Connection], object]) -> "Database":
        """A view of this database whose write transactions call `require` first, which may refuse them."""
        view = copy.copy(self)
        view._require = require
        return view

    @property
    def name(self) -> str:
        return self.address.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store; within `writing`, the state as written so far."""
        if self._here.connection is not None:
            yield self._here.connection
            return
        with self._translating(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store for as long as it lasts, on both databases."""
        level = {} if self.address.path else {"isolation_level": "REPEATABLE READ"}
        with self._translating(), self._reader.execution_options(**level).begin() as connection:
            yield connection

    @contextmanager
    def writing(self, alone: str | None = None) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends, and leaves no trace when it fails.

        Within another block of this thread it is a savepoint: it fails alone, and is on the disk when the
        outer block ends. `alone` names an advisory lock that the transaction holds to its end.
        """
        outer = self._here.connection
        transaction: AbstractContextManager[Connection]
        if outer is not None:
            transaction = savepoint(outer)
        else:
            transaction = self._commits.turn() if self._commits else self._writer.begin()
        with self._translating(), transaction as connection:
            if alone is not None:
                lock(connection, alone)
            if self._require is not None:
                self._require(connection)
            self._here.connection = connection
            try:
                yield connection
            finally:
                self._here.connection = outer

    def write(self, effect: Callable[[Connection], T]) -> T:
        """Run `effect` in a transaction and return its result once on the disk; nothing is kept if it fails.

        Writers at the same moment share a commit, so another thread may run it: it should be brief.
        """
        if self._here.connection is not None or self._commits is None:
            with self.writing() as connection:
                return effect(connection)
        with self._translating():
            return self._commits.run(self._as_transaction(effect))

    def write_all(self, effects: Sequence[Callable[[Connection], T]]) -> list[T | Exception]:
        """Result or exception of each effect, once on the disk; by one commit if the database allows that."""
        results: list[T | Exception] = []
        if self._commits is not None and self._here.connection is None:
            with self._translating():
                done = self._commits.run_all([self._as_transaction(effect) for effect in effects])
            for result in done:
                try:
                    with self._translating():
                        if isinstance(result, Exception):
                            raise result
                    results.append(result)
                except Exception as error:
                    results.append(error)
            return results
        for effect in effects:
            try:
                results.append(self.write(effect))
            except Exception as error:
                results.append(error)
        return results

    def _as_transaction(self, effect: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """`effect`, with the connection set as this thread's transaction while it runs."""

        def run(connection: Connection) -> T:
            if self._require is not None:
                self._require(connection)
            self._here.connection = connection
            try:
                return effect(connection)
            finally:
                self._here.connection = None

        return run

    def fetch(
        self, shape: Hashable, build: Callable[[], Select[Any] | Insert | Update], values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Rows as the driver gives them. `build` makes the statement that all of this shape share.

        Twenty rows take a tenth of the time they take through SQLAlchemy's results.
        """
        prepared = self._prepared.get(shape)
        if prepared is None:
            if len(self._prepared) >= _MOST_SHAPES:
                self._prepared.clear()
            prepared = self._prepared[shape] = CompiledStatement(build(), self._reader.dialect)
        try:
            if self._here.connection is not None:
                # The driver's own connection: SQLAlchemy's takes a while to pass things on to it.
                raw = self._here.connection.connection.dbapi_connection
                assert raw is not None
                return prepared.rows(raw, values)
            if self.address.path is not None:
                return prepared.rows(self._reads_here(), values)
            connection = self._raw()
            try:
                rows = prepared.rows(connection, values)
            except DBAPIError:
                connection.invalidate()  # a restart of the server may have cut it
                raise
            connection.close()
            return rows
        except DBAPIError as error:
            raise self._failure(error) from None

    def add(self, table: Table, row: Mapping[str, Any], returning: str | None = None) -> Any:
        """Insert a row within a block of `writing` or `write`; the new value of the column `returning`."""
        assert self._here.connection is not None
        columns = table.c

        def build() -> Insert:
            statement = insert(table).values(_parameters(table, row))
            return statement if returning is None else statement.returning(columns[returning])

        rows = self.fetch((table.name, *row, returning), build, _encoded(table, row))
        return rows[0][0] if rows else None

    def change(self, table: Table, row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
        """Change the row whose columns equal `where`, within such a block; whether there is one."""
        assert self._here.connection is not None
        columns, key = table.c, next(iter(where))

        def build() -> Update:
            same = [columns[name] == bindparam(f"was_{name}", type_=columns[name].type) for name in where]
            return update(table).where(*same).values(_parameters(table, row)).returning(columns[key])

        values = {**_encoded(table, row), **{f"was_{name}": value for name, value in where.items()}}
        return bool(self.fetch(("change", table.name, *row, *where), build, values))

    def check_room(self) -> None:
        """Raise FullError if the disk of a file has hardly any space left."""
        path = self.address.path
        if path is not None and _is_full(path.parent):
            raise FullError(_FULL.format(name=self.name))

    def move_log(self) -> None:
        """Move SQLite's write-ahead log into its file, as far as nobody has to wait for it."""
        if self.address.path is not None:
            with self._translating():
                execute(self._reads_here(), self._reader.dialect, "PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close every connection that nobody uses."""
        while self._kept:
            self._kept.pop().close()
        self._here = _ThreadState()
        self._reader.dispose()

    def _reads_here(self) -> DBAPIConnection:
        """A connection to SQLite that this thread keeps: to borrow one takes longer than to read a row.

        It is never within a transaction, so there is nothing to roll back.
        """
        if self._here.reads is None:
            proxied = self._raw()
            proxied.detach()
            assert proxied.dbapi_connection is not None
            self._here.reads = proxied.dbapi_connection
            self._kept.append(proxied)
        return self._here.reads

    def _raw(self) -> PoolProxiedConnection:
        try:
            return self._reader.raw_connection()
        except self._reader.dialect.loaded_dbapi.Error as error:
            raise DBAPIError(None, None, error) from None

    def _failure(self, error: DBAPIError) -> StorageError:
        """The driver's error for the user; damage is remembered."""
        failure = storage_error(error, self.address)
        if isinstance(failure, DamagedError):
            self.damage = failure
        return failure

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translates errors of the driver into sentences for the user."""
        try:
            yield
        except DBAPIError as error:
            raise self._failure(error) from None
        except StatementError as error:
            # An error of a column's encoder arrives wrapped as an error of the statement.
            if isinstance(error.orig, TrimtabError):
                raise error.orig from None
            raise


def _parameters(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: bindparam(name, type_=table.c[name].type) for name in row}


def _encoded(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    columns = table.c
    return {
        name: encode_json(value) if isinstance(columns[name].type, JSON) else value
        for name, value in row.items()
    }


def lock(connection: Connection, name: str) -> None:
    """Wait until no other transaction holds `name`, and hold it to this one's end."""
    # SQLite's writers are alone from the start; PostgreSQL's have to agree on a lock.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"key": lock_number(name)})


def lock_number(name: str) -> int:
    """A number to lock in PostgreSQL, which no other user of the database is likely to lock."""
    digest = hashlib.sha256(f"trimtab {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _sqlite_engine(address: Address) -> Engine:
    assert address.path is not None
    try:
        address.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"the folder of the store {address.name} cannot be made: {reason}; {_ELSEWHERE}"
        ) from None
    with suppress(OSError):  # SQLite will say what is wrong
        # It holds every tenant's data; SQLite itself would make it readable for everybody.
        address.path.touch(mode=0o600, exist_ok=False)
    path, file = address.path, f"file:{quote(str(address.path))}?mode=rw"
    # Without mode=rw, a connection after the file was removed would silently make an empty one.
    engine = create_engine(
        address.url,
        creator=lambda: sqlite3.connect(file, BUSY_TIMEOUT, uri=True, check_same_thread=False),
        json_serializer=encode_json,
        max_overflow=_UNBOUNDED,
    )
    opened = _file_number(path)

    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails where another wrote in between: lock up front.
        writes = connection.get_execution_options().get("writes", False)
        if writes and _file_number(path) != opened:
            raise StorageError(_REPLACED.format(name=address.name))
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", begin)
    return engine


def _file_number(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it is missing."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver would commit before every CREATE TABLE; with None it leaves transactions to us.
    connection.isolation_level = None
    # The switch needs the file to itself and, while another process writes, fails at once instead of waiting.
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    # In WAL mode, only FULL syncs the log at each commit; NORMAL may lose the last ones with the power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # The writer that fills the log moves it into the file, and others wait for that: seldom, then.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _postgresql_engine(address: Address) -> Engine:
    url = address.url
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT)})
    # A connection that a restart of the server has cut fails once more when it is returned, which the pool
    # would log with a traceback, although the caller has got the error.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    # The ping replaces such connections.
    return create_postgresql_engine(
        url, pool_pre_ping=True, json_serializer=encode_json, max_overflow=_UNBOUNDED
    )


def create_postgresql_engine(url: URL, **options: Any) -> Engine:
    """SQLAlchemy's engine for PostgreSQL; raises where its driver is not installed."""
    try:
        return create_engine(url, **options)
    except ImportError:
        raise MissingDependencyError(
            "a store in PostgreSQL needs the psycopg package; pip install 'trimtab[postgres]'"
        ) from None


def marker_of(address: Address) -> Path:
    """File in Trimtab's home that says that `trimtab up` has served this store."""
    return home() / f"store-{hashlib.sha256(address.name.encode()).hexdigest()[:12]}.json"


def require_never_served(address: Address) -> None:
    """Raise MissingStoreError if `trimtab up` has served a store here, which is about to be made anew."""
    marker = marker_of(address)
    if marker.exists():
        raise MissingStoreError(
            f"the store {address.name} is missing or empty, and trimtab up has served one there ({marker}); "
            f"mount its disk or put it back, restore a backup with trimtab store restore FILE, "
            f"or begin with an empty one by trimtab up --new-store"
        )


def bring_up_to_date(database: Database, new: bool = False) -> None:
    """Make or migrate the tables; several processes may do so at once, and one of them will.

    Unless a `new` store may be made, raises MissingStoreError where one was served that is empty now.
    """
    with database.reading() as connection:
        revision = revision_of(connection, database.name)
    if revision == REVISIONS[-1]:
        return
    if revision is None and not new:
        require_never_served(database.address)
    with database.writing() as connection:
        lock(connection, "schema")
        if revision_of(connection, database.name) != REVISIONS[-1]:
            migrate(connection)


def revision_of(connection: Connection, name: str) -> str | None:
    """Schema revision of the tables, None if there are none yet."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        foreign = sorted(tables & set(metadata.tables))
        if foreign:
            raise StorageError(
                f"{name} has a table {foreign[0]} that is not Trimtab's; give the store its own database"
            )
        return None
    query = text(f"SELECT version_num FROM {VERSION_TABLE}")  # nosec B608 # a constant of ours
    revision = connection.execute(query).scalar()
    if revision is not None and revision not in REVISIONS:
        raise StorageError(
            f"the store {name} was made by a newer Trimtab (schema {revision}, not {REVISIONS[-1]}); "
            f"upgrade Trimtab or name another store"
        )
    return revision


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the tables, existing or not, to a schema revision."""
    # Most openings find nothing to do, and Alembic is slow to import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "trimtab.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
