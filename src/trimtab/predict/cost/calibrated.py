"""Whose constants an accelerator goes by: its own where it was measured, the reference's otherwise."""

from dataclasses import replace
from functools import cache

from trimtab.catalog import Accelerator, accelerator, accelerators
from trimtab.predict.cost.constants import Calibration, parse_calibration

CARRIED_OVER = 1.35
"""How much further off, each way, an estimate may be whose constants were measured on another device."""


def calibration(target: Accelerator) -> Calibration:
    """The device's own constants, or the reference's with a wider range."""
    return _by_name(target.name)


@cache
def reference() -> Accelerator:
    """The measured accelerator whose constants the others borrow."""
    return next(a for a in accelerators() if a.constants)


@cache
def _by_name(name: str) -> Calibration:
    target = accelerator(name)
    if target.constants:
        return parse_calibration(target.constants, target.name)
    carried = _by_name(reference().name)
    low, high = carried.time_error
    return replace(carried, time_error=(low / CARRIED_OVER, high * CARRIED_OVER), measured=False)
