"""`trimtab models`: versions of the learned weights."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from trimtab import predict
from trimtab.catalog import load_offers
from trimtab.cli.place import here_alone, is_here, place
from trimtab.cli.terminal import DryRun, check_files, command_group, print_table, progress, say, warn
from trimtab.core import DEFAULT_TENANT, BadInputError, RealClock, TrimtabError, format_duration
from trimtab.predict import pretrain as fit
from trimtab.serve import ModelVersion
from trimtab.store import open_store

_RECOMMENDATIONS = 200  # the newest of a tenant, whose prices are looked at
_LEARN = "trimtab models update learns from these outcomes"
_ADVICE = {
    "accuracy": _LEARN,
    "bias": _LEARN,
    "load": f"measure it and predict again; {_LEARN}",
    "input": f"more known runs narrow its ranges, and {_LEARN}",
    "hardware": "the answer there is extrapolated; record an outcome there to learn from",
    "price": "decide again, with trimtab recommend or trimtab predict",
}

models_app = command_group("The learned models: their training data and their errors.")
models_app.callback()(here_alone("update", "drift"))


@models_app.command("pretrain")
def pretrain(
    output: Path = typer.Option(
        Path("foundation.safetensors"), "-o", "--output", help="The file of weights to write."
    ),
    data: Path | None = typer.Option(
        None,
        help="A folder with the data sets multicloud, scout, gpu-steps and gpu-throughput to train on too.",
    ),
    engine: str = typer.Option(
        "local://",
        metavar="URL",
        help="Engine that trains: local:// (this machine), ray://HOST:PORT or ray://auto.",
    ),
    seed: int = typer.Option(0, help="Seed of random numbers.", min=0, max=2**32 - 1),
) -> None:
    """Train weights on the bundled functions and on public data, as the shipped weights were trained.

    One encoder is trained on all data sets, then one predictor for each data set, which may use the encoder.
    All are tested on held-out applications. The file keeps their errors and those of the rules; the guard of
    `trimtab predict` uses them to choose. The same seed gives the same weights on any engine. It takes some
    minutes on two CPUs; Ctrl-C changes nothing.
    """
    check_files(output)
    with progress("learning", 1.0, remaining=True) as update:
        foundation = fit(
            data, seed, lambda name, part: update(completed=part, description=f"learned: {name}"), engine
        )
    foundation.save(output)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB", error=True)


@models_app.command("ls")
def ls(
    weights: Path | None = typer.Option(
        None, help="A file of weights to describe instead of the current ones."
    ),
) -> None:
    """List the versions, and the errors of the current one and of the rules on held-out applications.

    `shipped` are the weights that came with Trimtab; `trimtab models update` makes the others.
    """
    if weights:
        _print_backtest(predict.load_foundation(weights))
        return
    with place() as at:
        versions = at.models.list()
    if not is_here():
        _print_versions(versions, next((version.name for version in versions if version.current), ""))
        return
    foundation = predict.current_foundation(warn)
    _print_versions(versions, predict.version_name(foundation))
    _print_backtest(foundation)


@models_app.command("rollback")
def rollback(
    version: str | None = typer.Argument(
        None, help="The version to make current; default: the parent of the current one."
    ),
) -> None:
    """Make an earlier version current again; the replaced one stays on disk."""
    if not is_here():
        with place() as at:
            print(f"{at.models.rollback(version).name} answers there now")
        return
    versions = predict.Versions()
    with versions.alone():
        try:
            current = versions.current.name
        except TrimtabError:
            current = ""
        chosen = version or versions.before(current)
        if chosen == current:
            before = "" if version else "; nothing comes before it"
            raise BadInputError(f"{current} is already the current version{before}")
        versions.make_current(chosen, RealClock().now())
    there = (
        f", {current} stays on disk"
        if current in versions.names and current != predict.SHIPPED_VERSION
        else ""
    )
    print(f"{chosen} answers now{there}; trimtab models ls shows all versions")


@models_app.command("update")
def update(dry_run: DryRun = False) -> None:
    """Train a new version on recorded outcomes, in addition to the data of the current one.

    `trimtab outcome DECISION --time 190ms` records an outcome. Old and new weights are compared on held-out
    applications, original and your own. The new weights become current only if they are no worse; otherwise
    the exit status is 1. It takes seconds for clusters and some minutes for functions; Ctrl-C and errors
    leave the current version unchanged.
    """
    versions = predict.Versions()
    with versions.alone(), open_store() as store:
        plan = predict.plan_update(store, predict.current_foundation(warn, versions))
        current = predict.version_name(plan.foundation)
        for run in plan.doubtful:
            say(
                f"left out: {run.application} at {run.place} took {format_duration(run.seconds)}, where"
                f" {format_duration(run.predicted.value)} was predicted; that looks like a typing error"
            )
        if not plan.corpora:
            say("nothing new to learn; trimtab outcome DECISION --time 190ms records the result of one")
        for corpus in plan.corpora:
            say(f"to learn for {corpus}: {', '.join(example.case.name for example in plan.examples[corpus])}")
        if plan.corpora:
            say(f"{len(plan.new)} new outcomes, {len(plan.outcomes)} in all")
        if dry_run or not plan.corpora:
            return
        with progress("reading") as update:
            update()
            result = predict.update_weights(store, plan, versions, lambda step: update(description=step))
    for error in result.comparisons:
        rule = f"; the best rule {error.rule:.1%}" if error.rule is not None else ""
        say(
            f"{error.corpus}, {error.about} ({error.applications} applications): mean error {error.old:.1%},"
            f" then {error.new:.1%}: {'worse' if error.worse else 'no worse'}, where chance explains"
            f" {error.allowed:.1%} more{rule}"
        )
    if result.version is None:
        say(f"not promoted: the new weights do worse, so {current} stays current")
        raise typer.Exit(1)
    removed = f"; old versions removed: {', '.join(result.removed)}" if result.removed else ""
    say(f"{result.version} is current now; trimtab models rollback returns to {current}{removed}")


@models_app.command("drift")
def drift() -> None:
    """Check whether outcomes, requests and prices still match the data that the current version learned from.

    `trimtab outcome` checks outcomes by itself. Every finding is one event of kind `drift` in the store.
    """
    versions = predict.Versions()
    foundation = predict.current_foundation(warn, versions)
    since = versions.since
    offers, findings, new = load_offers(), list[predict.DriftFinding](), list[predict.DriftFinding]()
    with open_store() as store:
        events = predict.catch_up(store)
        # Per tenant: no tenant sees another's requests.
        for tenant in sorted({event.tenant for event in events} | {DEFAULT_TENANT}):
            own = [event for event in events if event.tenant == tenant]
            recommended = store.ledger.list(_RECOMMENDATIONS, kind="recommend", tenants=(tenant,))
            drifted = predict.all_drift(own, recommended, foundation, since, offers)
            findings += drifted
            new += predict.raise_events(store, own, drifted, RealClock().now(), tenant)
    for finding in findings:
        mark = "new" if finding in new else "known"
        say(f"{finding.name} ({mark}): {finding.sentence}; {_ADVICE[finding.name]}")
    if not findings:
        outcomes = [one for one in predict.measured_in(events) if one.decided >= since]
        applications = len({one.application for one in outcomes})
        say(
            "nothing to compare yet: no prediction of the current version has an outcome"
            if not outcomes
            else f"no drift: {len(outcomes)} outcomes of {applications} applications that "
            f"{predict.version_name(foundation)} predicted, the requests and the prices match its data"
        )


def _print_versions(versions: Sequence[ModelVersion], answering: str) -> None:
    """Versions with their mean errors: before and after an update, else on held-out applications."""
    table = Table("version", "made", "comes from", "mean error")
    for version in versions:
        created = "" if version.made is None else f"{datetime.fromtimestamp(version.made):%Y-%m-%d %H:%M}"
        source = f"{version.parent}, {version.outcomes} outcomes" if version.parent else "came with Trimtab"
        errors = [
            f"{error['corpus']}, {error['about']}: {error['old']:.1%} before, {error['new']:.1%} after"
            for error in version.comparisons
        ] or [
            f"{corpus}, {predictor}: {by['1']:.1%} with one run"
            for corpus, answers in version.errors.items()
            for predictor, by in answers.items()
            if "1" in by
        ]
        name = f"{version.name} (current)" if version.name == answering else version.name
        text = f"cannot be used: {version.problem}" if version.problem else "\n".join(errors)
        table.add_row(*(escape(cell) for cell in (name, created, source, text)))
    print_table(table)


def _print_backtest(foundation: predict.Foundation) -> None:
    """Training data of the weights, and errors of them and the rules on held-out applications."""
    table = Table("learned from", "in", "mean error of", "1 run", "2 runs", "3 runs")
    sources = foundation.card.get("sources", {})
    for name, fitted in foundation.predictors.items():
        applications = sources.get(name, {}).get("applications")
        count = f", {applications} applications" if applications else ""
        first = (f"{name}{count}", ", ".join(sorted(fitted.environments)))
        for predictor, errors in fitted.errors.items() or [("never tested", {})]:
            cells = (f"{errors[runs]:.1%}" if runs in errors else "" for runs in (1, 2, 3))
            table.add_row(*(escape(text) for text in first), predictor, *cells)
            first = ("", "")
    print_table(table)
