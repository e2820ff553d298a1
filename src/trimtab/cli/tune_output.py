"""What `trimtab tune` prints: trials as they go, what is recommended and why; or the same as JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trimtab.tune import Begun, Done, News, Opinion, Trial, Tuned

_SHOWN = 5  # configurations below the recommended one


@contextmanager
def telling(quiet: bool) -> "Iterator[Callable[[News], None]]":
    """Tells of trials as they go: on standard error beside JSON, else on standard output."""
    from rich.console import Console

    from trimtab.tune import Begun, Done

    console = Console(stderr=quiet, highlight=False)
    with console.status("reading what is known") as line:

        def tell(news: "News") -> None:
            if isinstance(news, Begun):
                line.update(f"trial {news.number}: {news.setup.name}")
                _say(console, _begun(news))
            elif isinstance(news, Done):
                line.update("choosing")
                _say(console, _done(news))
            else:
                line.update("running it here")
                _say(console, news)

        yield tell


def print_tuned(tuned: "Tuned") -> None:
    """Everything a person wants to know at the end."""
    from rich.console import Console

    from trimtab.core import format_duration, format_money

    console = Console(highlight=False)
    if tuned.trials:
        console.print(_trials(tuned))
    seconds = sum(trial.seconds for trial in tuned.trials)
    _say(
        console,
        f"stopped: {tuned.stopped}. Trials took {format_duration(seconds)}, {format_money(tuned.spent)}."
        if tuned.trials
        else f"{tuned.stopped}.",
    )
    console.print(_opinions(tuned))
    best = tuned.best
    _say(console, f"rent {best.setup.name}: {_expectation(best)}, by {tuned.rests_on}")
    if tuned.decision:
        _say(console, f"decision {tuned.decision}: trimtab decisions {tuned.decision}")


def tuned_json(tuned: "Tuned", method: str) -> dict[str, Any]:
    """The same as plain data: seconds, bytes, dollars."""
    from trimtab.core import to_plain

    return {
        ("job" if tuned.is_job else "space"): tuned.task.name,
        "objective": tuned.objective,
        "method": method,
        "configurations": len(tuned.task.setups),
        "trials": to_plain(tuned.trials),
        "spent": {"dollars": tuned.spent, "seconds": sum(trial.seconds for trial in tuned.trials)},
        "stopped": tuned.stopped,
        "recommended": _plain(tuned.best),
        "rests_on": tuned.rests_on,
        "others": [_plain(each) for each in tuned.opinions[1:]],
        "decision": tuned.decision or None,
    }


def _plain(opinion: "Opinion") -> dict[str, Any]:
    from trimtab.core import to_plain

    return {
        **opinion.setup.plain,
        "price_per_second": opinion.setup.price_per_second,
        "time": to_plain(opinion.time),
        "cost": to_plain(opinion.cost),
        "evidence": opinion.evidence,
    }


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _begun(news: "Begun") -> str:
    from trimtab.core import format_money

    expected = f"; expected {_expectation(news.expected)}" if news.expected else ""
    price = f", for about {format_money(news.price)}" if news.price is not None else ""
    return f"trial {news.number}: {news.setup.name}{price}: {news.reason}{expected}"


def _done(news: "Done") -> str:
    from trimtab.core import format_duration, format_money

    trial = news.trial
    if news.result is None:
        found = f"{trial.status}: {trial.reason}"
    else:
        how = "the whole window" if trial.fidelity == 1 else "a short look, which was enough"
        step = f"{format_duration(trial.step_seconds or 0.0)} a step in {how}: " if trial.is_partial else ""
        found = f"{step}{_expectation(news.result)}"
    spent = f"{format_duration(trial.seconds)}, {format_money(trial.price)}"
    return f"  {found} (took {spent}); best now: {_best(news)}"


def _best(news: "Done") -> str:
    best = news.best
    if best is None:
        return "none"
    if best.setup.name == news.trial.setup:
        return "this one"
    return f"{best.setup.name} by {best.evidence}, {_expectation(best)}"


def _expectation(opinion: "Opinion") -> str:
    from trimtab.tune import span

    return f"{span(opinion.time)}, {span(opinion.cost)}"


def _trials(tuned: "Tuned") -> "Table":
    from rich.table import Table

    from trimtab.core import format_duration, format_money

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("trial", justify="right")
    table.add_column("configuration", overflow="fold")
    for name in ("a step" if tuned.is_job else "measured", "looked", "took", "price"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, trial in enumerate(tuned.trials, start=1):
        table.add_row(
            str(number),
            trial.setup,
            format_duration(trial.step_seconds) if trial.step_seconds else trial.status,
            _looked(trial),
            format_duration(trial.seconds),
            format_money(trial.price),
        )
    return table


def _looked(trial: "Trial") -> str:
    if not trial.ok:
        return ""
    return "in full" if trial.fidelity == 1 else "in short"


def _opinions(tuned: "Tuned") -> "Table":
    from rich.table import Table

    from trimtab.tune import span

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    table.add_column("time")
    table.add_column("cost")
    table.add_column("by", no_wrap=True)
    for rank, each in enumerate(tuned.opinions[: 1 + _SHOWN], start=1):
        table.add_row(str(rank), each.setup.name, span(each.time), span(each.cost), each.evidence)
    return table
