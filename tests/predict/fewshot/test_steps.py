from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict import BUNDLED_STEPS
from trimtab.predict.fewshot import steps


def test_the_bundled_steps_are_a_case_per_model() -> None:
    corpus = steps.read(BUNDLED_STEPS)
    assert len(corpus.cases) == len(corpus.applications) == 28
    case = next(c for c in corpus.cases if c.name == "resnet50")
    assert "H200 train bf16 batch=64" in case.configurations
    on_cpu = np.array([key.startswith("cpu") for key in case.configurations])
    assert case.setting("accelerators").tolist() == (~on_cpu).astype(float).tolist()
    assert np.isnan(case.setting("accelerator_flops")).tolist() == on_cpu.tolist()


def test_a_step_out_of_memory_is_not_ok_and_has_no_time() -> None:
    cases = steps.read(BUNDLED_STEPS).cases
    assert any((~case.ok).any() for case in cases)
    for case in cases:
        assert np.isnan(case.seconds).tolist() == (~case.ok).tolist()


def test_a_missing_file_or_an_unknown_gpu_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"steps\.csv does not exist"):
        steps.read(tmp_path)
    with pytest.raises(NotFoundError, match="H2000"):
        steps.read(BUNDLED_STEPS, gpu="H2000")
