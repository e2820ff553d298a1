"""What a tuning session has found so far, in a file that is written whole after each trial."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.core import BadInputError, StorageError, from_plain, home, to_plain
from trimtab.kernel import file_lock, write_whole
from trimtab.tune.job_local import LOCAL
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.trials import Effort, Trial

VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What trials must have in common to be held against each other."""

    job: str
    objective: str
    where: str
    digest: str  # of the job, its configurations, their prices, and how long they are looked at

    @classmethod
    def of(cls, space: JobSpace, objective: str, where: str, effort: Effort, price_date: str) -> "Identity":
        """That of a session; `where` is its engine's address, or this machine."""
        job = space.job
        told = [
            *(job.name, job.command, str(job.folder), job.samples, job.epochs),
            *(effort.window, price_date, where),
            *(to_plain(setup) for setup in space.setups),
        ]
        digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        return cls(job.name, objective, where, digest[:16])

    @property
    def file(self) -> Path:
        """Where its state is kept unless somebody names another file."""
        return home() / "tune" / f"{self.job}-{self.objective}-{self.digest}.json"


@dataclass(frozen=True, slots=True)
class Subject:
    """What trials were made of, for who learns from them: configurations, samples in all, the price date.

    `local` is the file in Trimtab's home with its local run.
    """

    setups: tuple[Setup, ...]
    samples: float
    price_date: str
    local: str


@dataclass(frozen=True, slots=True)
class State:
    """A session as it is kept: whose it is, and its trials in order."""

    version: int
    identity: Identity
    trials: tuple[Trial, ...] = ()
    subject: Subject | None = None


class StateFile:
    """The state of a session that nobody else is at work with."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self._state = state

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""
        return self._state.trials

    def about(self, subject: Subject) -> None:
        """Whoever tunes another job may learn from these trials."""
        self._state = replace(self._state, subject=subject)

    def add(self, trial: Trial) -> None:
        """Keep one more trial; it is on the disk when this returns."""
        self._state = replace(self._state, trials=(*self._state.trials, trial))
        write_whole(self.path, json.dumps(to_plain(self._state), indent=1) + "\n")


@contextlib.contextmanager
def open_state(identity: Identity, path: Path | None = None) -> Iterator[StateFile]:
    """The session's state, new or as it was left; one that belongs to something else is refused."""
    path = path or identity.file
    with _alone(path):
        yield StateFile(path, _read(path, identity))


def earlier_trials(identity: Identity, path: Path | None = None) -> tuple[Trial, ...]:
    """Trials of the same job in the same place, whatever they were to make small; longer looks come last.

    States are written whole, so they can be read while somebody works with them.
    """
    if path is not None and not path.exists():
        raise BadInputError(f"there is no file {path}; trimtab tune writes it")
    files = [path] if path else sorted(identity.file.parent.glob(f"*-{identity.digest}.json"))
    found = list[Trial]()
    for file in files:
        state = _kept(file)
        if state is not None:
            _check(file, state.identity, replace(identity, objective=state.identity.objective))
            found += state.trials
    return tuple(sorted(found, key=lambda trial: (trial.fidelity, trial.measured_at)))


def kept_states() -> Iterator[State]:
    """All that are in Trimtab's home; what cannot be read there is passed over."""
    for path in sorted((home() / "tune").glob("*-*.json")):
        if not path.name.endswith(LOCAL):
            with contextlib.suppress(BadInputError, StorageError):
                state = _kept(path)
                if state is not None:
                    yield state


def _read(path: Path, identity: Identity) -> State:
    state = _kept(path)
    if state is None:
        return State(VERSION, identity)
    _check(path, state.identity, identity)
    return state


def _kept(path: Path) -> State | None:
    """What is in the file; None where there is none."""
    try:
        return from_plain(State, json.loads(path.read_text(encoding="utf-8")), "state")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError, BadInputError):
        raise BadInputError(f"{path} is not the state of a tuning; name another with --state") from None


def _check(path: Path, kept: Identity, identity: Identity) -> None:
    """Refuse a state that belongs to something else."""
    for what, theirs, ours in (
        ("the job", kept.job, identity.job),
        ("the objective", kept.objective, identity.objective),
        ("trials on", kept.where, identity.where),
        ("another SPEC than this:", kept.digest, identity.digest),
    ):
        if theirs != ours:
            raise BadInputError(
                f"{path} is the state of {what} {theirs}, not {ours}; name another file with --state"
            )


def _alone(path: Path) -> contextlib.AbstractContextManager[None]:
    """Nobody else works with that state meanwhile."""
    busy = f"another trimtab tune is at work with {path}; wait for it, or name another"
    return file_lock(path.with_name(f".{path.name}.lock"), busy)
