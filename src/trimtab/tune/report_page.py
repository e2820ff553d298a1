"""A tuning session as one HTML page that needs nothing else: what was tried, what is thought of the rest."""

from html import escape

from trimtab.core import format_money
from trimtab.page import bullets, chart, page, table
from trimtab.tune.opinion import span
from trimtab.tune.page_parts import LENGTH_NOTE, RANGE_NOTE, cost_against_time, trials_table
from trimtab.tune.session import Tuned

_SHOWN = 20


def tuning_report(tuned: Tuned) -> str:
    """The whole page."""
    name, best = tuned.space.job.name, tuned.best
    kept = f" Decision {escape(tuned.decision)}." if tuned.decision else ""
    summary = (
        f"<p><b>Rent {escape(best.setup.name)}</b>: {escape(span(best.time))},"
        f" {escape(span(best.cost))}. It rests on {escape(tuned.rests_on)}.</p>"
        f"<p>{escape(tuned.stopped[:1].upper() + tuned.stopped[1:])}. Trials cost"
        f" {escape(format_money(tuned.spent))}.{kept}</p>"
    )
    body = (
        f"{summary}<h2>Cost against time</h2>"
        f"{chart(cost_against_time(tuned.opinions), 'Cost against time', True)}"
        f"<h2>Trials</h2>{trials_table(tuned.trials)}"
        f"<h2>Ranking</h2>{_ranking(tuned)}"
        f"{bullets('To know', _notes(tuned))}"
    )
    return page(f"Trimtab: {name}", f"Where to train {name}", body)


def _ranking(tuned: Tuned) -> str:
    rows = [
        (str(rank), each.setup.name, span(each.time), span(each.cost), each.evidence)
        for rank, each in enumerate(tuned.opinions[:_SHOWN], start=1)
    ]
    return table(("#", "Configuration", "Time", "Cost", "By"), rows, numbers=(0,), best_first=True)


def _notes(tuned: Tuned) -> list[str]:
    return [
        f"{len(tuned.space.setups)} configurations were considered; the objective is {tuned.objective}",
        RANGE_NOTE,
        LENGTH_NOTE,
    ]
