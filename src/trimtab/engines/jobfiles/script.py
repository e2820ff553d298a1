"""The shell script that runs on every node: variables, rendezvous, and the command itself."""

from dataclasses import dataclass

from trimtab.engines.jobfiles.batch_size import with_batch_size
from trimtab.engines.jobfiles.job import Job
from trimtab.engines.jobfiles.launcher import Launcher, launcher, torchrun_arguments, uses_torchrun
from trimtab.engines.jobfiles.quoting import quote

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


def node_script(job: Job, rendezvous: Rendezvous, prefix: str = "exec") -> str:
    """What every node runs; `prefix` comes before the command, `exec` so that it receives the signals."""
    nodes = job.configuration.nodes
    per_node = max(1, job.configuration.offer.accelerators)
    workers = rendezvous.workers or str(per_node)
    place = rendezvous if nodes > 1 else _ALONE
    command, has_batch_size = with_batch_size(job.workload.command, job.configuration.batch_size)
    starts = launcher(command, job.configuration.devices)
    lines = []
    if not has_batch_size:
        lines.append("# The command has no batch-size option: the script must read this variable.")
        lines.append(f"export TRIMTAB_BATCH_SIZE={job.configuration.batch_size}")
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
