"""What the server counts, in Prometheus' text format."""

from typing import Any

from trimtab.serve.http.envelope import EDGES, Figures


def exposition(figures: Figures, listeners: int, leading: bool) -> str:
    """All of it."""
    lines = list[str]()

    def family(name: str, kind: str, says: str, rows: dict[str, Any]) -> None:
        lines.extend((f"# HELP trimtab_{name} {says}", f"# TYPE trimtab_{name} {kind}"))
        lines.extend(f"trimtab_{name}{labels} {value}" for labels, value in rows.items())

    counted = sorted(figures.requests.items())
    by = {f'{{method="{_method(method)}",status="{status}"}}': count for (method, status), count in counted}
    family("requests_total", "counter", "requests that were answered", by)
    total, rows = 0, dict[str, Any]()
    for edge, count in zip((*EDGES, "+Inf"), figures.within, strict=True):
        total += count
        rows[f'_bucket{{le="{edge}"}}'] = total
    rows |= {"_sum": f"{figures.seconds:.6f}", "_count": total}
    family("request_seconds", "histogram", "how long requests took", rows)
    family("event_listeners", "gauge", "streams of events that are open", {"": listeners})
    family("leading", "gauge", "whether this one schedules", {"": int(leading)})
    return "\n".join(lines) + "\n"


def _method(method: str) -> str:
    return method if method.isalpha() and len(method) < 10 else "other"
