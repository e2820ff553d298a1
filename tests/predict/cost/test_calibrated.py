import pytest

from trimtab.catalog import accelerator, accelerators
from trimtab.predict import calibration
from trimtab.predict.cost.calibrated import reference

OTHERS = [a.name for a in accelerators() if not a.constants]


def test_the_h200_goes_by_its_own_measurements() -> None:
    own = calibration(accelerator("H200"))
    assert own.measured
    assert reference().name == "H200"
    assert own.step.sharpness == accelerator("H200").constants["step"]["sharpness"]


@pytest.mark.parametrize("name", OTHERS)
def test_others_carry_its_constants_over_with_a_wider_range(name: str) -> None:
    own, carried = calibration(accelerator("H200")), calibration(accelerator(name))
    assert not carried.measured
    assert (carried.step, carried.memory) == (own.step, own.memory)
    assert carried.time_error[0] < own.time_error[0] < 1.0 < own.time_error[1] < carried.time_error[1]


def test_an_alias_goes_by_the_same_constants() -> None:
    assert calibration(accelerator("NVIDIA H200")) is calibration(accelerator("H200"))
