"""A world of jobs that adapt their batch to what they are given, from measured step times and gradients."""

from trimtab.schedule.simulation.goodput.profiles import Application, read_profiles
from trimtab.schedule.simulation.goodput.world import GoodputWorld

__all__ = ["Application", "GoodputWorld", "read_profiles"]
