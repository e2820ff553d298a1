"""A world of jobs that adapt their batch to what they are given, from measured step times and gradients."""

from trimtab.schedule.simulate.goodput.profiles import Application, read_profiles
from trimtab.schedule.simulate.goodput.world import GoodputWorld

__all__ = ["Application", "GoodputWorld", "read_profiles"]
