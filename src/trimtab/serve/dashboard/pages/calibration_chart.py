"""How often ranges held, against how often they were to."""

from collections.abc import Sequence

from trimtab.serve.dashboard.chart import Trace, axis, chart_text, figure
from trimtab.serve.operations import Calibration


def calibration_chart(judged: Sequence[Calibration]) -> Trace:
    """A point for each kind and quantity, larger with more outcomes; on the line, promises are kept."""
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "as promised",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"dash": "dot", "color": "#8a93a0"},
        "hoverinfo": "skip",
    }
    points = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": chart_text(f"{each.kind}: {each.quantity}"),
            "x": [each.promised],
            "y": [each.held / each.outcomes],
            "text": [f"{each.held} of {each.outcomes} held"],
            "hovertemplate": "%{text}<br>%{y:.0%} against %{x:.0%} promised<extra></extra>",
            "marker": {"size": 8 + 4 * min(5.0, each.outcomes**0.5)},
        }
        for each in judged
    ]
    share = {"range": [-0.05, 1.05], "tickformat": ".0%"}
    return figure([line, *points], 340, axis("promised", **share), axis("held", **share))
