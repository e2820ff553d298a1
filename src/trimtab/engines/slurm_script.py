"""A run as Slurm takes it: the options of sbatch, and the batch script."""

import math
from pathlib import Path

from trimtab.core import MIB, BadInputError, Launch, one_line
from trimtab.engines.jobfiles.quoting import quote
from trimtab.engines.kept_run import STOPPING

CLAIM = "claim"
"""The file in which the script writes its job's id before anything else."""

STATUS = "status"
"""The file in which the script writes how the workers ended."""

# The shell around each worker, which waits for it in the foreground: so signals interrupt nothing here.
_WORKER = (
    '> "$0/begun"; '
    "trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
    "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID "
    "MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000)); "
    '"$@"; status=$?; '
    '[ $status = 0 ] || (set -C; echo $status > "$0/failed") 2>/dev/null; '
    f'[ ! -e "$0/{STOPPING}" ] || status=0; '  # else the others would be hurried
    "exit $status"
)

_TRIES, _PAUSE = 150, 2  # s between them: a controller that is started again is there by then

_SCRIPT = """\
#!/bin/bash
# {title}
folder={folder}
if ! (set -C; echo "$SLURM_JOB_ID" > "$folder/{claim}") 2>/dev/null &&
    [ "$(cat "$folder/{claim}")" != "$SLURM_JOB_ID" ]; then
    echo "this run has begun as another job, or $folder cannot be written to on $SLURMD_NODENAME" >&2
    exit 1
fi
worker={worker}
# Where the controller is away just now, srun fails before any worker has begun: it is tried again.
again=
for try in {{1..{tries}}}; do
    srun $again --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c "$worker" "$folder" {command}
    status=$?
    if [ "$status" = 0 ] || [ -e "$folder/begun" ] || [ -e "$folder/{stopping}" ]; then break; fi
    again=--immediate  # else it would wait long for nodes that have not registered yet
    sleep {pause}
done
[ ! -s "$folder/failed" ] || status=$(cat "$folder/failed")
echo "$status" > "$folder/{status}"
exit "$status"
"""


def script(launch: Launch, folder: Path) -> str:
    """Starts all workers and ends with the status of the first that fails; `folder` is on a shared disk.

    A second job of the same run ends at once.
    """
    return _SCRIPT.format(
        title=one_line(launch.workload.name),
        folder=quote(str(folder)),
        claim=CLAIM,
        worker=quote(_WORKER),
        cpus=_cpus(launch),
        command=" ".join(quote(word) for word in launch.workload.command),
        status=STATUS,
        stopping=STOPPING,
        tries=_TRIES,
        pause=_PAUSE,
    )


def options(launch: Launch, name: str, partition: str, log: Path) -> list[str]:
    """What sbatch is asked for."""
    nodes = sorted({node for node, _ in launch.parts})
    asked = [
        f"--job-name={name}",
        f"--comment={one_line(launch.key)}",
        f"--output={str(log).replace('%', '%%')}",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        f"--cpus-per-task={_cpus(launch)}",
        *_workers(launch, nodes),
    ]
    if launch.memory:
        asked.append(f"--mem-per-cpu={math.ceil(launch.memory / _cpus(launch) / MIB)}M")
    if partition:
        asked.append(f"--partition={partition}")
    return asked


def _workers(launch: Launch, nodes: list[str]) -> list[str]:
    """How many, and their accelerators. Where nodes hold different numbers, Slurm spreads them as it can."""
    if launch.gpus != int(launch.gpus):
        raise BadInputError(f"Slurm gives whole accelerators; {launch.gpus:g} per worker cannot be")
    gpus = int(launch.gpus)
    counts = {sum(count for name, count in launch.parts if name == node) for node in nodes}
    if len(counts) > 1:
        return [f"--ntasks={launch.workers}", *([f"--gpus-per-task={gpus}"] if gpus else [])]
    (count,) = counts
    return [f"--ntasks-per-node={count}", *([f"--gres=gpu:{count * gpus}"] if gpus else [])]


def _cpus(launch: Launch) -> int:
    return max(1, math.ceil(launch.cpus))
