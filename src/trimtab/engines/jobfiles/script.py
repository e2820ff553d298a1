"""The shell script that every node runs: quoting, batch size, launcher, rendezvous variables, the command."""

import re
import shlex
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from trimtab.core import BadInputError, Parallelism
from trimtab.engines.jobfiles.job import JobFile


def quote(word: str) -> str:
    """`word` as bash reads it back.

    Control characters become $'…' escapes: YAML rewrites some of them and sbatch refuses carriage returns.
    The escapes are bytes, not code points, because bash decodes the latter only in a UTF-8 locale.
    """
    if "\0" in word:
        raise BadInputError("the command holds a NUL character, which no program can be given")
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escape, word)) + "'"


def _escape(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    try:
        raw = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadInputError("the command holds half a character (a lone surrogate); write it again") from None
    return "".join(f"\\{byte:03o}" for byte in raw)


_OPTION = r"--(?:per[-_]device[-_])?(?:train[-_])?(?:micro[-_])?(?:batch[-_]?size|batch|bs)|-b"


def with_batch_size(command: tuple[str, ...], batch_size: int) -> tuple[tuple[str, ...], bool]:
    """The command with its batch-size option set, and whether it had one (`--batch-size 32`, `-b32`, …)."""
    words, has_option = list(command), False
    for index, word in enumerate(words):
        joined = re.fullmatch(rf"((?:{_OPTION})=|-b)\d+", word)
        apart = re.fullmatch(_OPTION, word) and index + 1 < len(words)
        if joined:
            words[index] = f"{joined[1]}{batch_size}"
            has_option = True
        elif apart and re.fullmatch(r"\d+", words[index + 1]):
            words[index + 1] = str(batch_size)
            has_option = True
    return tuple(words), has_option


_FROM_FIRST_NODE = {"mpirun", "mpiexec", "horovodrun", "deepspeed", "srun"}
_LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
_PYTHON = r"python(?:\d+(?:\.\d+)?)?"


class Launcher(Enum):
    """The program that starts the workers."""

    NONE = "one worker in all: the command itself"
    TORCHRUN = "torchrun, put before the command"
    COMMAND = "the command, once on every node"
    FIRST_NODE = "the command, once: it reaches the other nodes itself"


def launcher(command: tuple[str, ...], devices: int) -> Launcher:
    """The program that starts one worker per device: torchrun only for a Python script or module."""
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


RENDEZVOUS_PORT = 29500
"""torchrun's own default."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How a node learns its place, as bash words: its rank, the first node's address and port.

    `workers` is the number of workers a node starts; None takes the configuration's.
    """

    rank: str
    address: str
    port: str = str(RENDEZVOUS_PORT)
    workers: str | None = None


_ALONE = Rendezvous(rank="0", address="127.0.0.1")


_FSDP_STRATEGIES = {"gradients": "SHARD_GRAD_OP", "full": "FULL_SHARD"}


def parallelism_variables(parallel: Parallelism) -> dict[str, str]:
    """Environment variables that tell a script how to spread its model; empty for plain data parallelism.

    Those of FSDP are Accelerate's own, so that its `Accelerator` and the Trainer of Transformers follow them.
    """
    named = {
        "TRIMTAB_SHARDING": parallel.sharding if parallel.sharding != "none" else "",
        "TRIMTAB_TENSOR_PARALLEL": str(parallel.tensor) if parallel.tensor > 1 else "",
        "TRIMTAB_PIPELINE_PARALLEL": str(parallel.pipeline) if parallel.pipeline > 1 else "",
        "TRIMTAB_MICROBATCHES": str(parallel.microbatches) if parallel.microbatches > 1 else "",
        "TRIMTAB_CHECKPOINTING": "1" if parallel.recompute else "",
        "TRIMTAB_OPTIMIZER_BITS": "8" if parallel.eight_bit_optimizer else "",
        "TRIMTAB_ADAPTER_RANK": str(parallel.adapter_rank) if parallel.adapter_rank else "",
    }
    if parallel.sharding in _FSDP_STRATEGIES and parallel.tensor == parallel.pipeline == 1:
        named |= {
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_SHARDING_STRATEGY": _FSDP_STRATEGIES[parallel.sharding],
            "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
            "FSDP_ACTIVATION_CHECKPOINTING": "true" if parallel.recompute else "false",
        }
    return {name: value for name, value in named.items() if value}


def node_script(job: JobFile, rendezvous: Rendezvous, prefix: str = "exec") -> str:
    """The script that every node runs; the prefix `exec` lets the command receive signals."""
    nodes = job.configuration.nodes
    per_node = max(1, job.configuration.offer.accelerators)
    workers = rendezvous.workers or str(per_node)
    place = rendezvous if nodes > 1 else _ALONE
    command, has_batch_size = with_batch_size(job.workload.command, job.configuration.batch_size)
    starts = launcher(command, job.configuration.devices)
    lines = []
    if not has_batch_size and job.configuration.batch_size != job.profiled_batch:
        lines.append("# The command has no batch-size option: the script must read this variable.")
        lines.append(f"export TRIMTAB_BATCH_SIZE={job.configuration.batch_size}")
    spread = parallelism_variables(job.configuration.parallel)
    if spread:
        lines.append(f"# The estimate assumes {job.configuration.parallel.name}: the script must do so.")
        lines += [f"export {name}={value}" for name, value in spread.items()]
    if starts in (Launcher.COMMAND, Launcher.FIRST_NODE):
        lines.append(
            "# The command starts its workers itself and must take their number from these variables."
        )
        variables = {
            "NNODES": str(nodes),
            "NPROC_PER_NODE": workers,
            "NODE_RANK": place.rank,
            "MASTER_ADDR": place.address,
            "MASTER_PORT": place.port,
        }
        lines += [f"export {name}={value}" for name, value in variables.items()]
        if uses_torchrun(command):
            # torchrun takes the default of each of its options from PET_<option>.
            lines += [f'export PET_{name}="${name}"' for name in variables]
    if starts is Launcher.FIRST_NODE and nodes > 1:
        lines.append('[ "$NODE_RANK" = 0 ] || exit 0')
    words = [quote(word) for word in command]
    if starts is Launcher.TORCHRUN:
        words = [
            "torchrun",
            *_torchrun_options(nodes, workers, place),
            *map(quote, torchrun_arguments(command)),
        ]
    return "\n".join([*lines, f"{prefix} {' '.join(words)}"]) + "\n"


def _torchrun_options(nodes: int, workers: str, place: Rendezvous) -> list[str]:
    if nodes == 1:
        return ["--standalone", "--nnodes 1", f"--nproc-per-node {workers}"]
    return [
        f"--nnodes {nodes}",
        f"--nproc-per-node {workers}",
        f"--node-rank {place.rank}",
        f"--master-addr {place.address}",
        f"--master-port {place.port}",
    ]
