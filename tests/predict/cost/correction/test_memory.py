"""The memory correction: right about models alike, silent about others, and itself again after being kept."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from trimtab.catalog import accelerator
from trimtab.core import Model
from trimtab.predict import MeasuredStep, calibration, cases, predict_memory
from trimtab.predict.cost.correction.learn import learn_memory
from trimtab.predict.cost.correction.memory import correction_data, parse_correction
from trimtab.predict.cost.step_memory import memory_need

H200 = accelerator("H200")


def test_what_models_alike_were_off_by_is_corrected(measured: list[MeasuredStep]) -> None:
    steps = [s for s in measured if s.device != "cpu" and s.peak_memory]
    case = cases(steps, H200)
    # As if every model with convolutions needed a third more than the rule says, and the others as much.
    conv = np.asarray(case.need.conv_share) > 0.5
    truth = np.array([s.peak_memory for s in steps], dtype=float)
    rule = truth / np.where(conv, 1.33, 1.0)
    tested = np.array([s.name in ("resnet50", "bert_base_s128") for s in steps])
    learned = learn_memory(case, rule, ~tested)
    factor, unlike = learned.factor(case.need, rule)
    assert np.median(factor[tested & conv]) == pytest.approx(1.33, rel=0.05)
    assert np.median(factor[tested & ~conv]) == pytest.approx(1.0, rel=0.05)
    assert (unlike[tested] <= learned.farthest).all()


def test_a_step_unlike_all_is_left_to_the_rule(
    measured: list[MeasuredStep], make_model: Callable[..., Model]
) -> None:
    steps = [s for s in measured if s.device != "cpu" and s.peak_memory]
    case = cases(steps, H200)
    learned = learn_memory(case, predict_memory(case, calibration(H200).memory))
    strange = make_model(parameters=10**12, saved_sample_bytes=1e15)
    need = memory_need(strange, np.array([1e6]), True, "bf16")
    factor, unlike = learned.factor(need, np.array([1e21]))
    assert unlike[0] > learned.farthest
    assert factor[0] == pytest.approx(1.0, abs=0.01)


def test_it_is_kept_as_plain_data_and_comes_back_the_same(measured: list[MeasuredStep]) -> None:
    steps = [s for s in measured if s.device != "cpu" and s.peak_memory]
    case = cases(steps, H200)
    peaks = predict_memory(case, calibration(H200).memory)
    learned = learn_memory(case, peaks)
    back = parse_correction(json.loads(json.dumps(correction_data(learned))))
    assert back.factor(case.need, peaks)[0] == pytest.approx(learned.factor(case.need, peaks)[0], rel=1e-3)
