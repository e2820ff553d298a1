"""`trimtab demo`: a real small run of everything, so that there is something to look at."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import typer

from trimtab.core import BadInputError, RealClock, TrimtabError, format_duration
from trimtab.observe import Interrupts, ProfilerSettings, profile as run_and_profile
from trimtab.recommend import Request
from trimtab.schedule import only_scheduler, running_scheduler, submissions, submit_jobs
from trimtab.serve import LOCAL, Backend, Service, Settings, recommend_configuration, scheduler_factory
from trimtab.store import JobRecord, Store, open_store

_SCRIPT = Path("examples") / "train_digits.py"
_PROFILED = ("--batch-size", "32", "--size", "32")
_JOBS = {
    "demo-small": ("--epochs", "1", "--images", "96", "--batch-size", "16", "--size", "32"),
    "demo-larger": ("--epochs", "1", "--images", "160", "--batch-size", "32", "--size", "32"),
}
"""Arguments of the example; a script of one's own runs without any."""
_STEPS = 20  # that are profiled, if there is time
_LOOK = 0.3  # s between looks at the jobs


def demo(
    script: Path | None = typer.Option(
        None, help="The script to profile and run; default: examples/train_digits.py."
    ),
    seconds: float = typer.Option(120.0, min=2.0, help="Most seconds to profile."),
    patience: float = typer.Option(300.0, min=10.0, help="Most seconds to wait until the jobs end."),
) -> None:
    """Fill the store with records of a small run: a profile, a recommendation, two jobs and their outcomes.

    The script is profiled for a few seconds, configurations are ranked for it, and two short jobs of it are
    submitted. A scheduler that runs on the store runs them; if there is none, this command schedules them on
    this machine until they have ended. All records are measured, none are made up.
    """
    checkout = Path(__file__).resolve().parents[3]
    paths = (script,) if script is not None else (_SCRIPT, checkout / _SCRIPT)
    source = next((path.resolve() for path in paths if path.is_file()), None)
    if source is None:
        raise BadInputError(f"there is no script {script or _SCRIPT}; name one that trains, with --script")

    def command(options: tuple[str, ...]) -> list[str]:
        return [sys.executable, str(source), *(options if script is None else ())]

    with open_store() as store:
        _profile_and_recommend(store, command(_PROFILED), seconds)
        documents = [
            {
                "name": name,
                "command": command(options),
                "folder": str(source.parent),
                "application": "demo",
                "resources": {"gpus": 0, "cpus": 1},
            }
            for name, options in _JOBS.items()
        ]
        clock = RealClock()
        groups = running_scheduler(store, clock).groups
        records = submit_jobs(store, submissions(documents, "the demo"), groups, clock)
        for record in records:
            typer.echo(f"  job {record.id} ({record.name}) is submitted")
        with _scheduling(store):
            ended = _ended(store, records, patience)
        for record in ended:
            outcomes = store.ledger.outcomes(record.run.decision) if record.run.decision else ()
            note = f"; its outcome is with decision {record.run.decision}" if outcomes else ""
            ran = format_duration(record.run.seconds)
            typer.echo(f"  job {record.id} ({record.name}) {record.state.value} after {ran}{note}")
    typer.echo("look at it with trimtab up, at http://127.0.0.1:7430; or trimtab jobs, trimtab decisions")


def _profile_and_recommend(store: Store, command: list[str], seconds: float) -> None:
    typer.echo(f"profiling {Path(command[1]).name} for {seconds:g} s at most")
    interrupts = Interrupts()
    profile = run_and_profile(command, ProfilerSettings(seconds, 1.0, None, _STEPS), None, interrupts)
    if interrupts.received is not None:
        raise typer.Exit(128 + interrupts.received)
    if profile.model is None or profile.steps is None:
        raise BadInputError(f"{command[1]} made no training step in {seconds:g} s; give it more --seconds")
    store.profiles.save(profile)
    size = f"{profile.model.parameters:,} parameters, {len(profile.steps.seconds)} steps"
    typer.echo(f"  profile {profile.id}: {size}")
    typer.echo("ranking configurations for it")
    ranking = recommend_configuration(Service(Backend(store), LOCAL), profile, Request(spot=True))
    choice, considered = ranking.decision, ranking.result.considered
    store.ledger.record(choice)
    typer.echo(f"  decision {choice.id}: {choice.action['instance']} of {considered:,} configurations")


@contextlib.contextmanager
def _scheduling(store: Store) -> Iterator[None]:
    """Run a scheduler in this process meanwhile, unless one runs on the store already."""
    if running_scheduler(store, RealClock()).there:
        typer.echo("the scheduler that runs on this store runs them")
        yield
        return
    typer.echo("no scheduler runs on this store; they are scheduled here until they have ended")
    make, end = scheduler_factory(Settings(engine="local://", policy="trimtab", round=1.0)), threading.Event()
    with only_scheduler(store) as leadership:
        thread = threading.Thread(target=leadership.hold, args=(make, end), name="scheduler")
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
        active = [record for record in now if not record.state.final]
        if not active:
            return now
        if time.monotonic() > until:
            states = ", ".join(f"{record.name} is {record.state.value}" for record in active)
            raise TrimtabError(f"after {patience:g} s {states}; trimtab queue says why")
        time.sleep(_LOOK)
