"""Why a configuration of a job is where it is in a ranking, in words."""

from trimtab.core import OBJECTIVES, format_bytes, format_duration, format_price
from trimtab.predict import MODEL, TRIAL
from trimtab.tune.opinion import Opinion, span
from trimtab.tune.ranking import Ranking
from trimtab.tune.trial_decision import by_rule


def explain_opinion(ranking: Ranking, rank: int) -> list[str]:
    """A paragraph of lines about one row, which are counted from 1."""
    row = ranking.rows[rank - 1]
    setup, now = row.setup, ranking.opinions
    steps = now.space.steps[row.row]
    rule = by_rule(now.prior, row.row, setup)
    return [
        f"Row {rank}: {setup.name}",
        f"  {now.space.job.length:,.0f} samples: {steps:,.0f} steps of {setup.batch * setup.workers:,},"
        f" {format_duration(row.time.value / float(steps))} each",
        f"  time {span(row.time)}, cost {span(row.cost)} at {format_price(setup.price_per_second)}"
        f" (prices of {ranking.price_date})",
        f"  {compared(ranking, row)}",
        f"  evidence: {row.evidence}, that is {now.rests_on(row)}; {row.why}",
        f"  rule: time {span(rule['time'])}, cost {span(rule['cost'])}",
        f"  memory: {memory_words(row)}",
    ]


def compared(ranking: Ranking, row: Opinion) -> str:
    """How it stands to the first row."""
    best = ranking.best
    if row is best:
        return f"{OBJECTIVES[ranking.goal.objective][1]} of {len(ranking.rows)}"
    return (
        f"{row.cost.value / best.cost.value:.2f} times the cost of row 1,"
        f" {row.time.value / best.time.value:.2f} times its time"
    )


def evidence_detail(ranking: Ranking, row: Opinion) -> str:
    """What stands below the word of the evidence."""
    if row.evidence == TRIAL:
        return "in full" if row.fidelity == 1 else "in short"
    jobs = ranking.opinions.prior.jobs
    return f"{jobs} other job{'' if jobs == 1 else 's'}" if row.evidence == MODEL else "local run"


def memory_words(row: Opinion) -> str:
    """What a worker needs, what it has, and whether that suffices."""
    need, limit = format_bytes(row.memory), format_bytes(row.setup.shape.memory)
    return f"a worker needs about {need} of {limit}; {fits_words(row)}"


def fits_words(row: Opinion) -> str:
    """Whether it fits, as far as anybody knows."""
    return "it ran" if row.evidence == TRIAL else f"fits: {row.fits:.0%}"
