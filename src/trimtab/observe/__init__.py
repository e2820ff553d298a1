"""What does my workload do? Runs a command, samples what it uses, listens to PyTorch from inside."""

from trimtab.observe.functions import LAWS, SIZES, Collection, Effort
from trimtab.observe.functions import collect as collect_functions
from trimtab.observe.interrupts import Interrupts
from trimtab.observe.profile_file import load_profile, save_profile
from trimtab.observe.profiler import Progress, Settings, name_of, profile
from trimtab.observe.run import CommandError

__all__ = [
    "LAWS",
    "SIZES",
    "Collection",
    "CommandError",
    "Effort",
    "Interrupts",
    "Progress",
    "Settings",
    "collect_functions",
    "load_profile",
    "name_of",
    "profile",
    "save_profile",
]
