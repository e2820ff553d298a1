"""The shipped constants of operations are those of the bundled stages, and hold for models left out."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from trimtab.catalog import accelerator
from trimtab.core import BadInputError
from trimtab.predict import (
    BUNDLED_STAGES,
    MeasuredStage,
    OperationConstants,
    fit_operations,
    predict_stages,
    read_stages,
)

H200 = accelerator("H200")


@pytest.fixture(scope="module")
def stages() -> list[MeasuredStage]:
    return read_stages(BUNDLED_STAGES)


def test_the_shipped_constants_are_those_of_the_bundled_stages(stages: list[MeasuredStage]) -> None:
    found, shipped = fit_operations(stages, H200), OperationConstants()
    for each in fields(shipped):
        assert getattr(found, each.name) == pytest.approx(getattr(shipped, each.name), rel=0.02), each.name


def test_they_hold_for_a_model_they_were_not_fitted_to(stages: list[MeasuredStage]) -> None:
    known = [each for each in stages if each.model != "gpt2_medium"]
    left_out = [each for each in stages if each.model == "gpt2_medium"]
    guessed = predict_stages(left_out, H200, fit_operations(known, H200))
    truth = np.array([each.forward + each.backward for each in left_out])
    assert np.median(np.abs(guessed / truth - 1)) < 0.25


def test_a_file_that_is_not_of_stages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="timed stages"):
        read_stages(tmp_path)
    (tmp_path / "stages.csv").write_text("model,samples\na,b\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="timed stages"):
        read_stages(tmp_path)
