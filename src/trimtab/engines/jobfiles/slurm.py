"""A Slurm batch script: `sbatch job.sh`."""

import math

from trimtab.engines.jobfiles.job import Job, comment
from trimtab.engines.jobfiles.launcher import Launcher, launcher
from trimtab.engines.jobfiles.machine import is_tpu_vm, requestable_cpus, requestable_memory
from trimtab.engines.jobfiles.script import Rendezvous, node_script

_RENDEZVOUS = Rendezvous(rank='"$SLURM_NODEID"', address='"$FIRST_NODE"')

_FIND_FIRST_NODE = 'export FIRST_NODE="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"\n'

_SRUN = 'exec srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_each_node\n'


def write(job: Job) -> str:
    """The script; on several nodes its body becomes a function that srun calls once on each."""
    notes = [
        "The code must lie in the folder sbatch is called from, on a file system all nodes share.",
        "A cluster that counts cores, not hardware threads, offers half of --cpus-per-task.",
    ]
    options = "".join(f"#SBATCH --{option}\n" for option in _options(job))
    header = comment(job.header("sbatch job.sh", notes))
    return f"#!/bin/bash\n{header}{options}\n{_body(job)}"


def _options(job: Job) -> list[str]:
    configuration, offer = job.configuration, job.configuration.offer
    options = [
        f"job-name={job.name}",
        f"nodes={configuration.nodes}",
        "ntasks-per-node=1",
        f"cpus-per-task={max(1, math.floor(requestable_cpus(offer)))}",
        f"mem={requestable_memory(offer) // 2**20}M",
    ]
    if offer.accelerators and not is_tpu_vm(offer):
        # Type names in gres are each site's own; a wrong one is refused, none is always right.
        options.append(f"gres=gpu:{offer.accelerators}")
    if job.time_limit is not None:
        options.append(f"time={_slurm_time(job.time_limit)}")
    options.append("requeue" if configuration.spot else "no-requeue")
    return options


def _body(job: Job) -> str:
    script = node_script(job, _RENDEZVOUS)
    if job.configuration.nodes == 1:
        return script
    if launcher(job.workload.command, job.configuration.devices) is Launcher.FIRST_NODE:
        return f"{_FIND_FIRST_NODE}{script}"
    indented = "".join(f"    {line}\n" for line in script.splitlines())
    return f"{_FIND_FIRST_NODE}on_each_node() {{\n{indented}}}\nexport -f on_each_node\n{_SRUN}"


def _slurm_time(seconds: int) -> str:
    """days-hours:minutes:seconds."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"
