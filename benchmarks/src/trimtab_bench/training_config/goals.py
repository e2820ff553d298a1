"""What was aimed at with jobs of our own, beside what was reached."""

from collections.abc import Mapping
from operator import ge, le
from typing import Any

from trimtab_bench.goals import Goal, judged

_WANTED = {
    ("seen", "cost_rmse_over_mean"): (le, 0.12),
    ("seen", "time_rmse_over_mean"): (le, 0.12),
    ("unseen", "regret_0"): (le, 1.10),
    ("unseen", "regret_3"): (le, 1.03),
    ("seen", "cost_r2"): (ge, 0.98),
    ("seen", "time_r2"): (ge, 0.98),
    ("unseen", "auc_cost"): (ge, 0.95),
    ("unseen", "auc_time"): (ge, 0.95),
}


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(
        Goal(f"{section}.{name}", figures[section][name], compare, wanted)
        for (section, name), (compare, wanted) in _WANTED.items()
    )
