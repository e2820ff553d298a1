"""Numbers of training under faults, from steps whose times are known."""

import math

import pytest
from trimtab_bench.fabric.gloo_jobs import Marks, Restarted, Run
from trimtab_bench.fabric.training import Trained, compared, p90_ratio, slowdown

from trimtab.collect import Step


def run(*lengths: float, begun: float = 100.0, loss: float = 1.0, failure: str = "") -> Run:
    """Steps of these lengths, the first of which begins a second after the start."""
    steps, now = list[Step](), begun + 1.0
    for number, length in enumerate(lengths, start=1):
        now += length
        steps.append(Step(number, loss / number, now))
    return Run(begun, now, tuple(steps), Marks(ready=begun + 1.0), failure=failure)


def test_time_is_counted_from_the_first_step_without_the_start() -> None:
    calm = Trained(run(*[0.1] * 100))
    assert calm.seconds == pytest.approx(10.0)
    faulty = Trained(run(*[0.1] * 50, 0.3, *[0.1] * 49))
    assert slowdown(faulty, calm) == pytest.approx(1.02)


def test_a_job_that_failed_is_no_quick_one() -> None:
    died, calm = Trained(run(0.1, failure="rank 0 was killed")), Trained(run(*[0.1] * 20))
    assert slowdown(died, calm) == p90_ratio(died, calm) == math.inf
    assert Trained(run()).seconds == math.inf


def test_what_was_done_twice_counts_once_and_takes_its_time() -> None:
    first, second = run(*[0.1] * 6, failure="it died"), run(*[0.1] * 10, begun=110.0)
    restarted = Trained(Restarted((first, second)))
    assert restarted.seconds == pytest.approx(second.steps[-1].time - 101.0)
    assert restarted.seconds_per_step == pytest.approx(restarted.seconds / 10)


def test_a_stall_is_found_after_the_fault_that_made_it() -> None:
    lengths = [0.1] * 100
    lengths[50] = 0.4  # ends 5.4 s after the first step's begin
    faulty = Trained(run(*lengths), faults=(101.0 + 5.05, 101.0 + 8.0))
    assert faulty.stalls == pytest.approx((0.3, 0.0), abs=1e-6)
    calm = Trained(run(*[0.1] * 100, begun=500.0)).at(faulty.faults, faulty.run.steps[0].time)
    assert calm.stalls == pytest.approx((0.0, 0.0), abs=1e-6)


def test_the_90th_percentile_is_of_ten_iterations_each() -> None:
    calm = Trained(run(*[0.1] * 201))
    once = Trained(run(*[0.1] * 100, 1.0, *[0.1] * 100))
    assert p90_ratio(once, calm) == pytest.approx(1.0)
    often = Trained(run(0.1, *[*[0.1] * 10, *[0.2] * 10] * 10))
    assert p90_ratio(often, calm) == pytest.approx(2.0)


def test_pairs_are_compared_each_with_its_own() -> None:
    pairs = [
        (Trained(run(*[0.11] * 20), faults=(101.5,)), Trained(run(*[0.1] * 20))),
        (Trained(run(*[0.2] * 20, loss=1.5), faults=(101.5,)), Trained(run(*[0.2] * 20))),
    ]
    told = compared(pairs)
    assert told["ratios"] == pytest.approx([1.1, 1.0])
    assert told["loss_difference"] == pytest.approx(0.5)
    assert (told["faults"], told["crashes"], told["steps"]) == (2, [], 20)
    assert len(told["stalls_s"]) == len(told["calm_stalls_s"]) == 2
