"""What was aimed at with jobs of our own, beside what was reached."""

from collections.abc import Mapping
from typing import Any

_MOST = {
    ("seen", "cost_rmse_over_mean"): 0.12,
    ("seen", "time_rmse_over_mean"): 0.12,
    ("unseen", "regret_0"): 1.10,
    ("unseen", "regret_3"): 1.03,
}
_LEAST = {
    ("seen", "cost_r2"): 0.98,
    ("seen", "time_r2"): 0.98,
    ("unseen", "auc_cost"): 0.95,
    ("unseen", "auc_time"): 0.95,
}


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    found = {}
    for wanted, words, better in ((_MOST, "at most", -1), (_LEAST, "at least", 1)):
        for (section, name), limit in wanted.items():
            value = figures[section][name]
            met = better * value >= better * limit
            found[f"{section}.{name}"] = {"value": value, "wanted": f"{words} {limit:g}", "met": met}
    return found
