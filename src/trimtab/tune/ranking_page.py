"""A ranking of a job's configurations as one HTML page that needs nothing else: with what each rests on."""

from collections.abc import Callable
from html import escape

from trimtab.core import format_bytes, format_duration, format_money, format_price
from trimtab.page import Cell, bullets, chart, page, table
from trimtab.tune.importance_part import importance_part
from trimtab.tune.opinion import Opinion, span
from trimtab.tune.page_parts import LENGTH_NOTE, RANGE_NOTE, cost_against_time, trials_table
from trimtab.tune.ranking import Ranking
from trimtab.tune.ranking_words import compared, evidence_detail, explain_opinion, fits_words

_SHOWN = 30


def ranking_report(ranking: Ranking, tell: Callable[[str], None] = lambda news: None) -> str:
    """The whole page."""
    best, now = ranking.best, ranking.opinions
    kept = f" Decision {escape(ranking.decision.id)}." if ranking.decision.id else ""
    summary = (
        f"<p><b>Rent {escape(best.setup.name)}</b>: {escape(span(best.time))}, {escape(span(best.cost))}."
        f" It rests on {escape(now.rests_on(best))}.</p>"
        f"<p>{len(now.space.setups)} configurations were considered; the objective is"
        f" {escape(ranking.goal.objective)}.{kept}</p>"
    )
    body = (
        f"{summary}<h2>Cost against time</h2>"
        f"{chart(cost_against_time(ranking.rows), 'Cost against time', True)}"
        f"<h2>Ranking</h2>{_table(ranking)}"
        f"{bullets('Why the first row', [line.strip() for line in explain_opinion(ranking, 1)[1:]])}"
        f"{bullets('Who answers', [now.prior.note])}"
        f"{bullets('Left out', [f'{each.count:,}: {each.reason}' for each in ranking.dropped])}"
        f"<h2>Trials</h2>{trials_table(now.trials)}"
        f"{_importance(ranking, tell)}"
        f"{bullets('To know', _notes(ranking))}"
    )
    return page(f"Trimtab: {ranking.job}", f"Where to train {ranking.job}", body)


def _table(ranking: Ranking) -> str:
    heads = ("#", "Configuration", "Time", "Cost", "Price", "Memory of a worker", "Evidence")
    shown = ranking.rows[: max(_SHOWN, ranking.goal.top)]
    rows = [_cells(ranking, number, row) for number, row in enumerate(shown, start=1)]
    return table(heads, rows, numbers=(0, 2, 3, 4, 5), best_first=True)


def _cells(ranking: Ranking, number: int, row: Opinion) -> tuple[Cell, ...]:
    time, cost, setup = row.time, row.cost, row.setup
    return (
        str(number),
        (setup.name, compared(ranking, row)),
        (format_duration(time.value), f"{format_duration(time.low)} to {format_duration(time.high)}"),
        (format_money(cost.value), f"{format_money(cost.low)} to {format_money(cost.high)}"),
        format_price(setup.price_per_second),
        (f"{format_bytes(row.memory)} of {format_bytes(setup.shape.memory)}", fits_words(row)),
        (row.evidence, _detail(ranking, row)),
    )


def _detail(ranking: Ranking, row: Opinion) -> str:
    """Why this evidence, unless it is the same for all and said once."""
    detail = evidence_detail(ranking, row)
    return detail if row.why in ranking.opinions.prior.note else f"{detail}: {row.why}"


def _importance(ranking: Ranking, tell: Callable[[str], None]) -> str:
    tell("weighing the features of what was learned from other jobs")
    return importance_part(ranking.others, ranking.job, ranking.goal.objective)


def _notes(ranking: Ranking) -> list[str]:
    return [
        f"prices as of {ranking.price_date}",
        RANGE_NOTE,
        LENGTH_NOTE,
        "a trial was measured; a model learned from other jobs how far the rule is off; the rule divides the"
        " CPU time that a step took in the local run by the CPUs of a machine",
    ]
