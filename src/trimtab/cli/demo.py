"""`trimtab demo`: a real small run through everything, so that there is something to look at."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trimtab.core import BadInputError, Profile, RealClock, TrimtabError, format_duration
from trimtab.observe import Interrupts, ProfilerSettings, profile as observe
from trimtab.recommend import Request, decision, earlier_runs
from trimtab.schedule import hand_in, only_scheduler, running_scheduler, submissions
from trimtab.serve import Settings, rank_configurations, scheduler_factory
from trimtab.store import JobRecord, Store, open_store

_SCRIPT = Path("examples") / "train_digits.py"
_PROFILED = ("--batch-size", "32", "--size", "32")
_JOBS = (
    ("demo-small", ("--epochs", "1", "--images", "96", "--batch-size", "16", "--size", "32")),
    ("demo-larger", ("--epochs", "1", "--images", "160", "--batch-size", "32", "--size", "32")),
)
"""What the example is run with; a script of one's own is run as it is."""
_STEPS = 20  # that are profiled, if there is time
_LOOK = 0.3  # s


def demo(
    script: Annotated[
        Path | None, typer.Option(help="What to profile and run; else examples/train_digits.py.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=2.0, help="How long to profile at most.")] = 120.0,
    patience: Annotated[float, typer.Option(min=10.0, help="Seconds to wait for the jobs' end.")] = 300.0,
) -> None:
    """Fill the store with a real small run: a profile, a recommendation, two jobs and their outcomes.

    The script is profiled for a few seconds, configurations are ranked for it, and two short jobs of it are
    handed in. A scheduler that runs on the store runs them; where there is none, this command schedules
    them on this machine until they have ended. Nothing is made up.
    """
    source, own = _script(script), script is not None
    with open_store() as store:
        _recommend(store, _profile(store, _command(source, own, _PROFILED), seconds))
        records = _submit(store, source, own)
        with _scheduling(store):
            ended = _ended(store, records, patience)
        _tell(store, ended)
    typer.echo("look at it with trimtab up, at http://127.0.0.1:7430; or trimtab jobs, trimtab decisions")


def _script(told: Path | None) -> Path:
    here = Path(__file__).resolve().parents[3] / _SCRIPT
    for path in (told,) if told is not None else (_SCRIPT, here):
        if path.is_file():
            return path.resolve()
    raise BadInputError(f"there is no script {told or _SCRIPT}; name one that trains, with --script")


def _command(script: Path, own: bool, options: tuple[str, ...]) -> list[str]:
    return [sys.executable, str(script), *(() if own else options)]


def _profile(store: Store, command: list[str], seconds: float) -> Profile:
    typer.echo(f"profiling {Path(command[1]).name} for {seconds:g} s at most")
    caught = Interrupts()
    found = observe(command, ProfilerSettings(seconds, 1.0, None, _STEPS), None, caught)
    if caught.received is not None:
        raise typer.Exit(128 + caught.received)
    if found.model is None or found.steps is None:
        raise BadInputError(f"{command[1]} showed no training step in {seconds:g} s; give it more --seconds")
    store.profiles.save(found)
    seen = f"{found.model.parameters:,} parameters, {len(found.steps.seconds)} steps"
    typer.echo(f"  profile {found.id}: {seen}")
    return found


def _recommend(store: Store, profile: Profile) -> None:
    typer.echo("ranking configurations for it")
    request = Request(spot=True)
    found = rank_configurations(profile, request, earlier=earlier_runs(store, profile))
    made = decision(found)
    store.ledger.record(made)
    typer.echo(f"  decision {made.id}: {made.action['instance']} of {found.considered:,} configurations")


def _submit(store: Store, script: Path, own: bool) -> tuple[JobRecord, ...]:
    documents = [
        {
            "name": name,
            "command": _command(script, own, options),
            "folder": str(script.parent),
            "application": "demo",
            "resources": {"gpus": 0, "cpus": 1},
        }
        for name, options in _JOBS
    ]
    clock = RealClock()
    wanted = submissions(documents, "the demo")
    records = hand_in(store, wanted, running_scheduler(store, clock).groups, clock)
    for record in records:
        typer.echo(f"  job {record.id} ({record.name}) is handed in")
    return records


@contextlib.contextmanager
def _scheduling(store: Store) -> Iterator[None]:
    """Somebody schedules meanwhile: who does already, or this process."""
    if running_scheduler(store, RealClock()).there:
        typer.echo("the scheduler that runs on this store runs them")
        yield
        return
    typer.echo("no scheduler runs on this store; they are scheduled here until they have ended")
    make, end = (
        scheduler_factory(Settings(engine="local://", policy="trimtab", round=1.0)),
        threading.Event(),
    )
    with only_scheduler(store) as post:
        thread = threading.Thread(target=post.hold, args=(make, end), name="scheduler")
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def _ended(store: Store, records: tuple[JobRecord, ...], patience: float) -> tuple[JobRecord, ...]:
    """The jobs once they are over."""
    until = time.monotonic() + patience
    while True:
        now = tuple(store.jobs.get(record.id) for record in records)
        if all(record.state.final for record in now):
            return now
        if time.monotonic() > until:
            waits = ", ".join(f"{each.name} is {each.state.value}" for each in now if not each.state.final)
            raise TrimtabError(f"after {patience:g} s {waits}; trimtab queue says why")
        time.sleep(_LOOK)


def _tell(store: Store, records: tuple[JobRecord, ...]) -> None:
    for record in records:
        outcomes = store.ledger.outcomes(record.run.decision) if record.run.decision else ()
        kept = f"; its outcome is with decision {record.run.decision}" if outcomes else ""
        ran = format_duration(record.run.seconds)
        typer.echo(f"  job {record.id} ({record.name}) {record.state.value} after {ran}{kept}")
