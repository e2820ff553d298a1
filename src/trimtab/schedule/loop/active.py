"""The jobs that are still to be done, as they are after everything that was written so far."""

import logging

from trimtab.core import BadInputError
from trimtab.schedule.loop.book import Book
from trimtab.store import JobRecord, JobState, Store

log = logging.getLogger(__name__)


class ActiveJobs:
    """Jobs that we can do something about: read from the store again after every change."""

    def __init__(self, store: Store, book: Book, address: str) -> None:
        self._store = store
        self._book = book
        self._address = address
        self._jobs: tuple[JobRecord, ...] = ()
        self._runs: dict[str, str] = {}
        self._changes = -1
        self._said = set[str]()
        self._pulse = (-1, -1)

    def refresh(self) -> None:
        """Read them again, whoever has changed them."""
        newest, _ = self._store.jobs.pulse()
        found = self._store.jobs.active()
        self._changes = self._book.changes
        self._pulse = (newest, sum(record.state is JobState.STOPPING for record in found))
        self._jobs = tuple(record for record in found if self._is_ours(record))
        self._runs = {
            record.run.run_id: record.id
            for record in self._jobs
            if record.run.run_id and record.state is not JobState.WAITING
        }

    def now(self) -> tuple[JobRecord, ...]:
        """In order of submission."""
        if self._changes != self._book.changes:
            self.refresh()
        return self._jobs

    def in_state(self, state: JobState) -> list[JobRecord]:
        """Those in one state."""
        return [record for record in self.now() if record.state is state]

    def of_run(self, run_id: str) -> JobRecord | None:
        """The job whose run that was when they were last read, as the store has it at this moment."""
        record = self._store.jobs.get(self._runs[run_id]) if run_id in self._runs else None
        return record if record and record.run.run_id == run_id and not record.state.final else None

    def stirred(self) -> bool:
        """Whether somebody has submitted a job, or asked for the end of one, since they were read."""
        self.now()
        return self._store.jobs.pulse() != self._pulse

    def _is_ours(self, record: JobRecord) -> bool:
        """Whether it can be read, and does not run on somebody else's engine."""
        try:
            self._book.submission(record)
        except BadInputError as error:
            self._say_once(f"job {record.id} is left alone, because it cannot be read: {error}")
            return False
        theirs, ours = (each.partition("?")[0] for each in (record.run.engine, self._address))
        if record.state is JobState.WAITING or theirs == ours:
            return True
        self._say_once(f"job {record.id} is left alone, because it runs on {theirs}, and this is {ours}")
        return False

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            log.warning(sentence)
        self._said.add(sentence)
