"""A tuning session as one HTML page that needs nothing else: what was tried, what is thought of the rest."""

from html import escape

import plotly.graph_objects as go

from trimtab.core import Estimate
from trimtab.core.units import format_duration, format_money
from trimtab.page import COLORS, bullets, chart, page
from trimtab.recommend.tuning.opinion import Opinion
from trimtab.recommend.tuning.session import Tuned
from trimtab.recommend.tuning.trials import Trial

_SHOWN = 20


def report(tuned: Tuned) -> str:
    """The whole page."""
    name, best = tuned.space.job.name, tuned.best
    summary = (
        f"<p><b>Rent {escape(best.setup.name)}</b>: {escape(_range(best.time))},"
        f" {escape(_range(best.cost))}. It rests on {escape(tuned.rests_on)}.</p>"
        f"<p>{escape(tuned.stopped[:1].upper() + tuned.stopped[1:])}. Trials cost"
        f" {escape(format_money(tuned.spent))}. Decision {escape(tuned.decision)}.</p>"
    )
    body = (
        f"{summary}<h2>Cost against time</h2>{chart(_figure(tuned), 'Cost against time', True)}"
        f'<h2>Trials</h2><div class="scroll">{_trials(tuned.trials)}</div>'
        f'<h2>Ranking</h2><div class="scroll">{_ranking(tuned.opinions[:_SHOWN])}</div>'
        f"{bullets('To know', _notes(tuned))}"
    )
    return page(f"Trimtab: {name}", f"Where to train {name}", body)


def _figure(tuned: Tuned) -> go.Figure:
    figure = go.Figure()
    for evidence, color in zip(("rule", "model", "trial"), COLORS, strict=False):
        shown = [each for each in tuned.opinions if each.evidence == evidence]
        if not shown:
            continue
        figure.add_trace(
            go.Scatter(
                x=[each.time.value / 3600 for each in shown],
                y=[each.cost.value for each in shown],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [(each.time.high - each.time.value) / 3600 for each in shown],
                    "arrayminus": [(each.time.value - each.time.low) / 3600 for each in shown],
                    "thickness": 1,
                },
                mode="markers",
                name=f"by {evidence}",
                text=[each.setup.name for each in shown],
                marker={
                    "size": 11 if evidence == "trial" else 7,
                    "symbol": "star" if evidence == "trial" else "circle",
                    "color": color,
                },
                hovertemplate="%{text}<br>%{x:.3g} h, $%{y:.3g}<extra></extra>",
            )
        )
    figure.update_xaxes(type="log", title="time of the whole job (hours)")
    figure.update_yaxes(type="log", title="its cost ($)")
    figure.update_layout(template="plotly_white", height=520, margin={"t": 20, "r": 10})
    return figure


def _trials(trials: tuple[Trial, ...]) -> str:
    if not trials:
        return "<p>None.</p>"
    head = "".join(f"<th>{name}</th>" for name in ("#", "Configuration", "Step", "Took", "Price", "Found"))
    body = "".join(
        f"<tr><td class=number>{number}</td><td>{escape(trial.setup)}</td>"
        f"<td class=number>{format_duration(trial.step_seconds) if trial.step_seconds else '–'}</td>"
        f"<td class=number>{format_duration(trial.seconds)}</td>"
        f"<td class=number>{format_money(trial.price)}</td>"
        f"<td>{escape(trial.reason or f'{trial.steps} steps, {trial.fidelity:.0%} of the window')}</td></tr>"
        for number, trial in enumerate(trials, start=1)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _ranking(opinions: tuple[Opinion, ...]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("#", "Configuration", "Time", "Cost", "By"))
    body = "".join(
        f"<tr{' class=first' if rank == 1 else ''}><td class=number>{rank}</td>"
        f"<td>{escape(each.setup.name)}</td><td>{escape(_range(each.time))}</td>"
        f"<td>{escape(_range(each.cost))}</td><td>{escape(each.evidence)}</td></tr>"
        for rank, each in enumerate(opinions, start=1)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _range(estimate: Estimate) -> str:
    show = format_money if estimate.unit == "$" else format_duration
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _notes(tuned: Tuned) -> list[str]:
    return [
        f"{len(tuned.space.setups)} configurations were considered; the objective is {tuned.objective}",
        "ranges hold the truth in 90 % of cases",
        "the job's length stays the same in samples, whatever the batch and the number of workers",
    ]
