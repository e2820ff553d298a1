"""A stage's size in the ledger."""

from collections.abc import Callable

from trimtab.core import Outcome, Profile, SimulatedClock
from trimtab.pipelines import RULE, Pipeline, size, stage_decision
from trimtab.store import compare, open_store


def test_a_decision_is_kept_and_its_outcome_judged(
    pipeline: Callable[..., Pipeline], used: Callable[..., Profile]
) -> None:
    text = "name: digits\nstages: [{name: train, command: a, accelerator: 'T4:1', resources: {cpu: 2}}]"
    read = pipeline(text)
    (sized,) = size(read, {"train": used([1.0] * 20, [2.0**29] * 20)})
    made = stage_decision(read.name, sized, SimulatedClock(5.0))
    with open_store() as store:
        store.ledger.record(made)
        assert store.ledger.list(kind="pipeline", subject="digits/train") == (made,)
    assert made.chosen_by == made.rule.who == RULE
    assert made.action == {"cpu": 1.0, "memory": 640 * 2**20, "accelerator": "T4", "accelerators": 1}
    assert made.alternatives[0].action["cpu"] == 2.0
    (time,) = compare(made, Outcome(made.id, 6.0, {"time": 25.0}))
    assert time.held
    assert time.error == -0.2
