"""`trimtab models`: the weights that predictions come from."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from trimtab.catalog import load_offers
from trimtab.cli.options import command_group
from trimtab.cli.place import here_alone, is_here, place
from trimtab.cli.terminal import print_table, progress, say, warn
from trimtab.core import BadInputError, RealClock, TrimtabError, format_duration, from_plain
from trimtab.kernel import check_writable
from trimtab.predict import (
    SHIPPED_VERSION,
    DriftFinding,
    Foundation,
    UpdatePlan,
    Versions,
    WeightsComparison,
    all_drift,
    catch_up,
    current_foundation,
    load_foundation,
    measured_in,
    plan_update,
    pretrain as fit,
    raise_events,
    update_weights,
    version_name,
)
from trimtab.serve import ModelVersion
from trimtab.store import open_store

_RECOMMENDATIONS = 200  # the newest of a tenant, whose prices are looked at
_ALONE = "default"  # the tenant of who works alone
_LEARN = "trimtab models update learns from these outcomes"
_ADVICE = {
    "accuracy": _LEARN,
    "bias": _LEARN,
    "load": f"measure it again and ask anew; {_LEARN}",
    "input": f"more known runs make its answers surer, and {_LEARN}",
    "hardware": "the answer there is a guess; an outcome there can be learned from",
    "price": "decide again, with trimtab recommend or trimtab predict",
}

models_app = command_group("The learned models: what they come from, how good they are.")
models_app.callback()(here_alone("update", "drift"))


@models_app.command("pretrain")
def pretrain(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file of weights to write.")] = Path(
        "foundation.safetensors"
    ),
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with multicloud, scout, gpu-steps and gpu-throughput, to learn from them too."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to learn: local:// (this machine), ray://HOST:PORT or ray://auto.")
    ] = "local://",
    seed: Annotated[int, typer.Option(help="Where randomness starts.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Learn from the functions that came along and from public data; the shipped weights are these.

    One encoder learns from all data sets at once, then every data set gets a predictor of its own that may
    lean on it. All are tested on applications left out of their training; what they and the rules scored is
    kept in the file, and `trimtab predict` decides by it who answers. The same seed gives the same weights on
    any engine. It takes some minutes on two CPUs; Ctrl-C leaves everything as it was.
    """
    check_writable(output)
    with progress("learning", 1.0, remaining=True) as update:
        foundation = fit(
            data,
            seed,
            lambda what, part: update(completed=part, description=f"learned: {what}"),
            engine,
        )
    foundation.save(output)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB", error=True)


@models_app.command("ls")
def ls(
    weights: Annotated[Path | None, typer.Option(help="Other weights than the current ones.")] = None,
) -> None:
    """The versions there are, and how the current one and the rules did on applications left out.

    `shipped` are the weights that came with Trimtab; `trimtab models update` makes the others.
    """
    if weights:
        print_table(_backtest(load_foundation(weights)))
        return
    if not is_here():
        with place() as at:
            print_table(_versions_there(at.models.list()))
        return
    foundation = current_foundation(warn)
    print_table(_versions(Versions(), version_name(foundation)))
    print_table(_backtest(foundation))


@models_app.command("rollback")
def rollback(
    version: Annotated[
        str | None, typer.Argument(help="The version to go back to; else what the current one came from.")
    ] = None,
) -> None:
    """Let an earlier version answer again; the one that is left stays on disk, and can be returned to."""
    if not is_here():
        with place() as at:
            print(f"{at.models.rollback(version).name} answers there now")
        return
    versions = Versions()
    with versions.alone():
        try:
            current = versions.current.name
        except TrimtabError:
            current = ""
        wanted = version or versions.before(current)
        if wanted == current:
            before = "" if version else "; nothing comes before it"
            raise BadInputError(f"{current} is the current version already{before}")
        versions.make_current(wanted, RealClock().now())
    there = f", {current} stays on disk" if current in versions.names and current != SHIPPED_VERSION else ""
    print(f"{wanted} answers now{there}; trimtab models ls shows all versions")


@models_app.command("update")
def update(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be learned, and learn nothing.")
    ] = False,
) -> None:
    """Learn from the outcomes of predictions, beside all that was learned before.

    `trimtab outcome DECISION --time 190ms` records one. Old and new weights are compared on applications that
    neither was fitted to, those of before and your own; the new ones become current only if they do no worse,
    and the exit status is 1 if they do. Takes seconds for clusters, some minutes for functions; Ctrl-C and
    whatever else goes wrong leave the current version as it is.
    """
    versions = Versions()
    with versions.alone(), open_store() as store:
        plan = plan_update(store, current_foundation(warn, versions))
        current = version_name(plan.foundation)
        _print_plan(plan)
        if dry_run or not plan.corpora:
            return
        with progress("reading") as update:
            update()
            made = update_weights(store, plan, versions, lambda step: update(description=step))
    for each in made.comparisons:
        say(_in_words(each))
    if made.version is None:
        say(f"not promoted: the new weights do worse, so {current} stays current")
        raise typer.Exit(1)
    removed = f"; old versions removed: {', '.join(made.removed)}" if made.removed else ""
    say(f"{made.version} is current now; trimtab models rollback returns to {current}{removed}")


@models_app.command("drift")
def drift() -> None:
    """Whether outcomes, requests and prices still are what the current version was learned from.

    `trimtab outcome` looks at outcomes by itself. Every finding is one event of kind `drift` in the store.
    """
    versions = Versions()
    foundation = current_foundation(warn, versions)
    since = versions.since
    offers, found, new = load_offers(), list[DriftFinding](), list[DriftFinding]()
    with open_store() as store:
        events = catch_up(store)
        for tenant in sorted({event.tenant for event in events} | {_ALONE}):  # for nobody else's eyes
            theirs = [event for event in events if event.tenant == tenant]
            recommended = store.ledger.list(_RECOMMENDATIONS, kind="recommend", tenants=(tenant,))
            drifted = all_drift(theirs, recommended, foundation, since, offers)
            found += drifted
            new += raise_events(store, theirs, drifted, RealClock().now(), tenant)
    for each in found:
        mark = "new" if each in new else "known"
        say(f"{each.name} ({mark}): {each.sentence}; {_ADVICE[each.name]}")
    if not found:
        outcomes = [one for one in measured_in(events) if one.decided >= since]
        applications = len({one.application for one in outcomes})
        say(
            "nothing to go by yet: no prediction of the current version has an outcome"
            if not outcomes
            else f"no drift: {len(outcomes)} outcomes of {applications} applications that "
            f"{version_name(foundation)} predicted, the requests and the prices are as they should be"
        )


def _print_plan(plan: UpdatePlan) -> None:
    """What there is to learn, and what is not believed."""
    for one in plan.doubtful:
        say(
            f"left out: {one.application} at {one.place} took {format_duration(one.seconds)}, where "
            f"{format_duration(one.predicted.value)} was predicted; that looks like a slip of the pen"
        )
    if not plan.corpora:
        say("nothing new to learn; trimtab outcome DECISION --time 190ms records what a prediction came to")
    for corpus in plan.corpora:
        names = ", ".join(example.case.name for example in plan.examples[corpus])
        say(f"to learn for {corpus}: {names}")
    if plan.corpora:
        say(f"{len(plan.new)} new outcomes, {len(plan.outcomes)} in all")


def _in_words(each: WeightsComparison) -> str:
    rule = f"; the best rule {each.rule:.1%}" if each.rule is not None else ""
    verdict = "worse" if each.worse else "no worse"
    return (
        f"{each.corpus}, {each.about} ({each.applications} applications): mean error {each.old:.1%} before, "
        f"{each.new:.1%} after: {verdict}, where chance explains {each.allowed:.1%} more{rule}"
    )


def _versions(versions: Versions, answering: str) -> Table:
    table = Table("version", "made", "comes from", "mean error before and after")
    for name in versions.names:
        shown = f"{name} (current)" if name == answering else name
        try:
            about = versions.load(name).card.get("version", {})
        except TrimtabError as error:
            table.add_row(shown, "", "", escape(f"cannot be used: {error}"))
            continue
        table.add_row(shown, *(escape(text) for text in _about(about)))
    return table


def _versions_there(found: Sequence[ModelVersion]) -> Table:
    """A server's versions, and the mean errors of each on applications left out, with one known run."""
    table = Table("version", "made", "comes from", "mean error with one run")
    for each in found:
        made = "" if each.made is None else datetime.fromtimestamp(each.made).strftime("%Y-%m-%d %H:%M")
        source = f"{each.parent}, {each.outcomes} outcomes" if each.parent else "came with Trimtab"
        errors = [
            f"{corpus}, {who}: {by['1']:.1%}"
            for corpus, answers in each.errors.items()
            for who, by in answers.items()
            if "1" in by
        ]
        name = f"{each.name} (current)" if each.current else each.name
        shown = each.problem or "\n".join(errors)
        table.add_row(*(escape(text) for text in (name, made, source, shown)))
    return table


def _about(about: Mapping[str, Any]) -> tuple[str, str, str]:
    """When a version was made, what from, and what its comparison said."""
    if not about:
        return "", "came with Trimtab", ""
    made = datetime.fromtimestamp(about["made"]).strftime("%Y-%m-%d %H:%M")
    counts = about["applications"].items()
    learned = ", ".join(f"{count} of your applications in {name}" for name, count in counts)
    source = f"{about['parent']}, {len(about['outcomes'])} outcomes: {learned}"
    compared = [from_plain(WeightsComparison, each) for each in about["comparisons"]]
    figures = "\n".join(f"{each.corpus}, {each.about}: {each.old:.1%}, {each.new:.1%}" for each in compared)
    return f"{made} by {about['by']}", source, figures


def _backtest(foundation: Foundation) -> Table:
    """What the weights were learned from, and the errors of them and the rules."""
    table = Table("learned from", "in", "mean error of", "1 run", "2 runs", "3 runs")
    sources = foundation.card.get("sources", {})
    for name, fitted in foundation.predictors.items():
        applications = sources.get(name, {}).get("applications")
        count = f", {applications} applications" if applications else ""
        first = (f"{name}{count}", ", ".join(sorted(fitted.environments)))
        for who, errors in fitted.errors.items() or [("never tested", {})]:
            cells = (f"{errors[runs]:.1%}" if runs in errors else "" for runs in (1, 2, 3))
            table.add_row(*(escape(text) for text in first), who, *cells)
            first = ("", "")
    return table
