"""Wrong estimates on the Philly jobs: what is believed of a job's work is wrong by up to a factor of 2."""

from collections.abc import Sequence

import numpy as np

from trimtab_bench.schedule.stage import Stage, draws

POLICIES = ("trimtab", "srtf")
_FACTOR = 2.0


def belief_figures(stage: Stage, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: average hours to completion when it knows, when it is wrong, and the second over the first.

    Factors are from a half to two, as often too high as too low, and each job keeps its own.
    """
    wrong = np.exp(draws(seed, "beliefs").uniform(-1.0, 1.0, len(stage.jobs)) * np.log(_FACTOR)).tolist()
    figures = {}
    for name in names:
        right_h, wrong_h = (
            float(stage.run(name, wrong=factors).completion.mean()) / 3600.0 for factors in (None, wrong)
        )
        figures[name] = {"right_h": right_h, "wrong_h": wrong_h, "ratio": wrong_h / right_h}
    return figures
