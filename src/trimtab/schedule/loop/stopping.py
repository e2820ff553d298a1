"""Ending runs so that their work is kept: ask to save, wait for it, stop. Each in a thread of its own."""

import os
import subprocess
import threading
import time
from dataclasses import dataclass, field

from trimtab.core import BadInputError, Engine, NotFoundError, format_duration, without_secrets
from trimtab.schedule.job import Checkpoint
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.loop.sentences import sentence_of
from trimtab.schedule.submission import Submission
from trimtab.store import JobRecord

PATIENCE = 2.0
"""How many times as long as a job says a save takes it is waited for."""

_LOOK = 0.05  # s between looks at whether it has saved


@dataclass(slots=True, eq=False)
class Stop:
    """One run on its way out. `gone` is set by whoever hears that it has ended by itself."""

    run_id: str
    said: str = ""
    failed: str = ""
    gone: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Stops:
    """All runs on their way out, by the keys of their attempts."""

    def __init__(self, engine: Engine, grace: float = 10.0, patience: float = PATIENCE) -> None:
        self._engine = engine
        self._grace = grace
        self._patience = patience
        self._stops: dict[str, Stop] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._stops

    def begin(self, record: JobRecord, run_id: str, submission: Submission | None) -> None:
        """Start to stop a run; it is asked to save first where it can, unless nobody wants it any more."""
        stop = self._stops[record.key] = Stop(run_id)
        threading.Thread(
            target=self._stop,
            args=(stop, submission, record),
            name=f"stop {record.key}",
            daemon=True,
        ).start()

    def over(self) -> list[str]:
        """Keys of those whose run is gone."""
        return [key for key, stop in self._stops.items() if stop.over.is_set()]

    def take(self, key: str) -> Stop | None:
        """Forget one; what there is to say about it."""
        stop = self._stops.pop(key, None)
        if stop is not None:
            stop.gone.set()
        return stop

    def _stop(self, stop: Stop, submission: Submission | None, record: JobRecord) -> None:
        checkpoint = submission.job.checkpoint if submission else None
        try:
            if submission is not None and checkpoint is not None:
                said = self._save(stop, checkpoint, submission, record)
                stop.said = f"{said}, and it was stopped all the same" if said else ""
            if not stop.gone.is_set():
                self._engine.stop(stop.run_id, self._grace)
        except NotFoundError:
            pass  # it has ended meanwhile
        except Exception as error:  # whatever it is: unless we know that it has ended, it runs
            stop.failed = sentence_of(error)
        finally:
            stop.over.set()

    def _save(self, stop: Stop, checkpoint: Checkpoint, submission: Submission, record: JobRecord) -> str:
        """Ask it to save, and wait until it has; what went wrong, or nothing."""
        files = JobFiles.of(record.id)
        before = _touched(files)
        bound = self._patience * checkpoint.seconds
        if checkpoint.command:
            return _run(checkpoint.command, submission, record, bound)
        try:
            self._engine.signal(stop.run_id, checkpoint.signal or "USR1")
        except BadInputError as error:
            return f"it could not be asked to save ({error})"
        deadline = time.monotonic() + bound
        while _touched(files) == before:
            if stop.gone.wait(_LOOK):
                return ""
            if time.monotonic() > deadline:
                return (
                    f"it did not say within {format_duration(bound)} of {checkpoint.signal} that it had saved"
                )
        return ""


def _touched(files: JobFiles) -> int:
    try:
        return files.saved.stat().st_mtime_ns
    except OSError:
        return 0


def _run(command: tuple[str, ...], submission: Submission, record: JobRecord, bound: float) -> str:
    """A command that saves: here, in the job's folder, with its variables and the names of its nodes."""
    variables = {
        **without_secrets(os.environ),
        **submission.environment,
        **JobFiles.of(record.id).variables(),
        "TRIMTAB_JOB": record.id,
        "TRIMTAB_NODES": " ".join(part.node for part in record.run.parts),
    }
    try:
        done = subprocess.run(
            command,
            cwd=submission.folder or None,
            env=variables,
            timeout=bound,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"its checkpoint command took more than {format_duration(bound)}"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return f"its checkpoint command cannot be run ({why.lower()})"
    return f"its checkpoint command failed with status {done.returncode}" if done.returncode else ""
