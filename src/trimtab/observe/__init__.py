"""What does my workload do? Runs a command, samples what it uses, listens to PyTorch from inside.

And what would functions do: `collect_functions` makes some up and measures them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.observe.gpu import Gpus
from trimtab.observe.interrupts import Interrupts
from trimtab.observe.profile_file import load_profile, save_profile
from trimtab.observe.profiler import Progress, Settings, name_of, profile
from trimtab.observe.run import CommandError

if TYPE_CHECKING:
    from trimtab.observe.functions import LAWS, SIZES, Collection, Effort, collect_functions

__all__ = [
    "LAWS",
    "SIZES",
    "Collection",
    "CommandError",
    "Effort",
    "Gpus",
    "Interrupts",
    "Progress",
    "Settings",
    "collect_functions",
    "load_profile",
    "name_of",
    "profile",
    "save_profile",
]

# Whoever profiles does not wait for what measuring functions needs.
_OF_FUNCTIONS = ("LAWS", "SIZES", "Collection", "Effort", "collect_functions")


def __getattr__(name: str) -> Any:
    if name not in _OF_FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.functions"), name)
