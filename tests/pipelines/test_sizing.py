"""From what a stage used to what it should ask for."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError, Outcome, Profile, SimulatedClock
from trimtab.pipelines import RULE, Pipeline, Reserved, SizingRule, reserved_ways, size, stage_decision
from trimtab.pipelines.pipeline import ResourceRequest
from trimtab.pipelines.sizing import use_of
from trimtab.store import compare, open_store

Read = Callable[..., Pipeline]
Used = Callable[..., Profile]
ONE = "stages: [{name: train, command: a}]"
MIB = 2.0**20


def test_a_short_peak_of_cpu_is_left_out_and_the_peak_of_memory_is_not(pipeline: Read, used: Used) -> None:
    profile = used([0.5] * 99 + [3.0], [100 * MIB] * 99 + [200 * MIB])
    (sized,) = size(pipeline(ONE), {"train": profile})
    assert sized.request == ResourceRequest(0.6, 256 * MIB), "0.575 and 250 MiB, rounded up"
    assert sized.use.cpu_peak == 3.0
    assert "0.50 cores were enough for 95 % of" in sized.reason
    assert "200 MiB" in sized.reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.floats(0, 64), st.floats(0, 1e12)), min_size=1, max_size=30),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_requests_cover_use_but_not_more_than_was_ever_used(
    used: Used, pipeline: Read, samples: list[tuple[float, float]], headroom: float, margin: float
) -> None:
    profile = used([cpu for cpu, _ in samples], [memory for _, memory in samples])
    (sized,) = size(pipeline(ONE), {"train": profile}, rule=SizingRule(headroom, margin))
    use, request = sized.use, sized.request
    assert request.cpu >= use.cpu_enough - 1e-9
    assert request.cpu <= max(0.05, use.cpu_peak + 0.5)
    assert request.memory >= use.memory_peak * (1 + margin) * (1 - 1e-9)
    assert sized.memory.contains(use.memory_peak)
    assert sum(cpu <= use.cpu_enough for cpu, _ in samples) >= 0.95 * len(samples) - 1e-6


def test_use_weighs_samples_by_their_time(used: Used) -> None:
    profile = used([4.0, 0.0], [0.0, 0.0])
    uneven = replace(profile, series=replace(profile.series, time=(1.0, 10.0)), window=10.0)
    assert use_of(uneven).cpu_mean == pytest.approx(0.4)
    assert use_of(uneven).cpu_enough == 4.0
    assert use_of(replace(profile, series=type(profile.series)())).cpu_enough == 0.0


def test_a_reason_says_what_the_run_could_not_show(pipeline: Read, used: Used) -> None:
    (sized,) = size(pipeline(ONE), {"train": used([3.9, 4.0], [1.0, 2.0])})
    assert "4 cores" in sized.reason

    assert "memory 64Mi" in sized.reason


def test_accelerators_come_only_with_a_reason(
    pipeline: Read, used: Used, make_profile: Callable[..., Profile]
) -> None:
    trains = {"train": make_profile("resnet50")}
    (none,) = size(pipeline(ONE), trains)
    assert none.request.accelerators is None
    assert "--accelerator train=T4:1" in none.reason
    (current,) = size(pipeline(ONE), trains, {"train": ("T4", 2)})
    assert (current.request.accelerator, current.request.accelerators) == ("T4", 2)
    assert "2 × T4" in current.reason
    (useless,) = size(pipeline(ONE), {"train": used([1.0], [1.0])}, {"train": ("T4", 1)})
    assert "PyTorch" in useless.reason
    own = "stages: [{name: train, command: a, accelerator: 'V100:4'}]"
    (kept,) = size(pipeline(own), trains)
    assert "4 × V100" in kept.reason
    (dropped,) = size(pipeline(own), trains, {"train": ("", 0)})
    assert "no accelerator" in dropped.reason


def test_tasks_that_share_a_container_share_the_larger_request(pipeline: Read, used: Used) -> None:
    read = pipeline("""
        kind: Workflow
        spec:
          entrypoint: all
          templates:
          - {name: all, dag: {tasks: [{name: a, template: one}, {name: b, template: one}]}}
          - {name: one, container: {command: ['true']}}
    """)
    profiles = {"a": used([1.0], [512 * MIB]), "b": used([2.0], [64 * MIB])}
    a, b = size(read, profiles)
    assert a.request == b.request == ResourceRequest(2.0, 640 * MIB)
    assert "a, b" in a.reason


def test_mistakes_are_refused(pipeline: Read, used: Used) -> None:
    read, profiles = pipeline(ONE), {"train": used([1.0], [1.0])}
    with pytest.raises(BadInputError, match="--margin is -1"):
        SizingRule(margin=-1)
    with pytest.raises(BadInputError, match='"load"'):
        size(read, profiles, {"load": ("T4", 1)})
    workflow = pipeline("argo.yaml")
    given_profiles = {stage.name: used([1.0], [1.0]) for stage in workflow.stages}
    with pytest.raises(NotFoundError, match="T5"):
        size(workflow, given_profiles, {"write": ("T5", 1)})


GIB = 2.0**30


def test_own_sizes_never_reserve_more_than_one_for_all(
    pipeline: Callable[..., Pipeline], used: Callable[..., Profile]
) -> None:
    text = """\
stages:
- {name: load, command: a, resources: {cpu: 4, memory: 16Gi}}
- {name: train, command: a, after: load, resources: {cpu: 4, memory: 16Gi}}
"""
    profiles = {"load": used([0.5] * 10, [0.8 * GIB] * 10), "train": used([2.0] * 90, [3.2 * GIB] * 90)}
    sized = size(pipeline(text), profiles)
    assert reserved_ways(sized) == {
        "as the file requests": Reserved(400.0, 1600 * GIB),
        "one size for all": Reserved(200.0, 400 * GIB),
        "each its own": Reserved(5.0 + 180.0, 10 * GIB + 360 * GIB),
    }
    silent = size(pipeline(text.replace(", memory: 16Gi", "", 1)), profiles)
    assert list(reserved_ways(silent)) == ["one size for all", "each its own"]


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
