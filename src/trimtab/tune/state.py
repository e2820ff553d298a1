"""The trials of a tuning session, kept in a file that is rewritten atomically after each trial."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError, from_plain, home, to_plain
from trimtab.kernel import file_lock, write_whole
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.trials import Trial, TrialWindow

LOCAL = ".local.json"
"""Suffix of the files of local runs, which lie in the same folder."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Properties that trials must share to be compared."""

    job: str
    objective: str
    where: str  # an engine's address, or this machine
    digest: str  # of the workload, its configurations, their prices, and how they are measured

    @classmethod
    def of_job(
        cls, space: JobSpace, objective: str, where: str, window: TrialWindow, price_date: str
    ) -> "Identity":
        """The identity of a session about a job of a SPEC."""
        job = space.job
        content = [
            *(job.name, job.command, str(job.folder), job.samples, job.epochs),
            *(window.seconds, price_date, where),
            *(to_plain(setup) for setup in space.setups),
        ]
        return cls.of(job.name, objective, where, content)

    @classmethod
    def of(cls, name: str, objective: str, where: str, content: list[Any]) -> "Identity":
        """The identity of a session about the workload that `content` describes."""
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return cls(name, objective, where, digest[:16])

    @property
    def file(self) -> Path:
        """The file of the state, unless another is named."""
        return home() / "tune" / f"{self.job}-{self.objective}-{self.digest}.json"


@dataclass(frozen=True, slots=True)
class Subject:
    """The job of a session, so that other jobs can learn from its trials.

    `samples` is the length of the whole job; `local` names the file in Trimtab's home with its local run.
    """

    setups: tuple[Setup, ...]
    samples: float
    price_date: str
    local: str


@dataclass(frozen=True, slots=True)
class State:
    """The content of a state file: trials are in the order in which they were made."""

    version: int
    identity: Identity
    trials: tuple[Trial, ...] = ()
    subject: Subject | None = None


class StateFile:
    """The state file of a session, which holds its lock."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self._state = state

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""
        return self._state.trials

    def about(self, subject: Subject) -> None:
        """Describe the job, for sessions of other jobs."""
        self._state = replace(self._state, subject=subject)

    def add(self, trial: Trial) -> None:
        """Keep one more trial; it is on the disk when this returns."""
        self._state = replace(self._state, trials=(*self._state.trials, trial))
        write_whole(self.path, json.dumps(to_plain(self._state), indent=1) + "\n")


@contextlib.contextmanager
def open_state(identity: Identity, path: Path | None = None) -> Iterator[StateFile]:
    """The session's state, new or as it was left; a state of another session is refused."""
    path = path or identity.file
    busy = f"another trimtab tune uses {path}; wait for it, or name another file with --state"
    with file_lock(path.with_name(f".{path.name}.lock"), busy):
        state = _read(path)
        if state is not None:
            _check(path, state.identity, identity)
        yield StateFile(path, state or State(_VERSION, identity))


def earlier_trials(identity: Identity, path: Path | None = None) -> tuple[Trial, ...]:
    """Trials of the same job in the same place, for any objective; those of higher fidelity come last.

    State files are replaced atomically, so they can be read without the lock.
    """
    if path is not None and not path.exists():
        raise BadInputError(f"there is no file {path}; trimtab tune writes it")
    files = [path] if path else sorted(identity.file.parent.glob(f"*-{identity.digest}.json"))
    trials = list[Trial]()
    for file in files:
        state = _read(file)
        if state is not None:
            _check(file, state.identity, replace(identity, objective=state.identity.objective))
            trials += state.trials
    return tuple(sorted(trials, key=lambda trial: (trial.fidelity, trial.measured_at)))


def kept_states() -> Iterator[State]:
    """All states in Trimtab's home; files that cannot be read are skipped."""
    for path in sorted((home() / "tune").glob("*-*.json")):
        if not path.name.endswith(LOCAL):
            with contextlib.suppress(BadInputError, StorageError):
                state = _read(path)
                if state is not None:
                    yield state


def _read(path: Path) -> State | None:
    """The state in a file; None where there is no file."""
    try:
        return from_plain(State, json.loads(path.read_text(encoding="utf-8")), "state")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError, BadInputError):
        raise BadInputError(f"{path} is not the state of a tuning; name another with --state") from None


def _check(path: Path, kept: Identity, identity: Identity) -> None:
    """Refuse a state that belongs to another session."""
    for name, old, new in (
        ("the job", kept.job, identity.job),
        ("the objective", kept.objective, identity.objective),
        ("trials on", kept.where, identity.where),
        ("another SPEC or space:", kept.digest, identity.digest),
    ):
        if old != new:
            raise BadInputError(
                f"{path} is the state of {name} {old}, not {new}; name another file with --state"
            )
