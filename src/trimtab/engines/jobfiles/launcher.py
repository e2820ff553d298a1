"""How a command becomes one worker per device: by itself, by torchrun, or from the first node."""

import re
from enum import Enum
from pathlib import PurePosixPath

_FROM_FIRST_NODE = {"mpirun", "mpiexec", "horovodrun", "deepspeed", "srun"}
_LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
_PYTHON = r"python(?:\d+(?:\.\d+)?)?"


class Launcher(Enum):
    """Who starts the workers."""

    NONE = "one worker in all: the command itself"
    TORCHRUN = "torchrun, put before the command"
    COMMAND = "the command, once on every node"
    FIRST_NODE = "the command, once: it reaches the other nodes itself"


def launcher(command: tuple[str, ...], devices: int) -> Launcher:
    """Who starts one worker per device: torchrun only for a Python script or module."""
    program = PurePosixPath(command[0]).name
    if devices == 1:
        return Launcher.NONE
    if program in _FROM_FIRST_NODE:
        return Launcher.FIRST_NODE
    return Launcher.TORCHRUN if _is_python_program(command) else Launcher.COMMAND


def uses_torchrun(command: tuple[str, ...]) -> bool:
    """Whether the command is torchrun under either of its names."""
    return PurePosixPath(command[0]).name == "torchrun" or "torch.distributed.run" in command[1:3]


def torchrun_arguments(command: tuple[str, ...]) -> tuple[str, ...]:
    """The end of the torchrun line that starts `command`."""
    plain = re.fullmatch(_PYTHON, command[0]) and (command[1] == "-m" or not command[1].startswith("-"))
    # A chosen interpreter or its options would be lost: torchrun starts its own.
    return command[1:] if plain else ("--no-python", *command)


def _is_python_program(command: tuple[str, ...]) -> bool:
    """`python [options] script …` or `python [options] -m module …`, unless the module is a launcher."""
    if not re.fullmatch(_PYTHON, PurePosixPath(command[0]).name):
        return False
    words = iter(command[1:])
    for word in words:
        if re.fullmatch(r"-[a-zA-Z]*m", word):
            module = next(words, None)
            return module is not None and module not in _LAUNCHER_MODULES
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
        elif word == "-" or re.fullmatch(r"-[a-zA-Z]*c.*", word):
            return False
        elif not word.startswith("-"):
            return True
    return False
