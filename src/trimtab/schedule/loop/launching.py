"""How a job's record becomes what an engine launches."""

import os
from collections.abc import Mapping
from dataclasses import replace

from trimtab.core import BadInputError, Launch, daly_interval
from trimtab.schedule.checkpointing import gang_rate
from trimtab.schedule.job import Checkpoint
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.submission import Submission
from trimtab.store import JobRecord

# The command takes the shell's place, so that signals and exit statuses are its own.
_IN_FOLDER = ("sh", "-c", 'cd -- "$0" && exec "$@"')


def launch_of_job(
    record: JobRecord, submission: Submission, surroundings: Mapping[str, str] | None = None
) -> Launch:
    """The present attempt. Variables to pass on come from `surroundings`, by default our own environment."""
    around = os.environ if surroundings is None else surroundings
    absent = [name for name in submission.passed if name not in around]
    if absent:
        raise BadInputError(
            f"{absent[0]} is to be passed on, and the scheduler's own environment does not have it; "
            f"start trimtab up with it"
        )
    job = submission.job
    command = job.workload.command
    if submission.folder:
        command = (*_IN_FOLDER, submission.folder, *command)
    environment = {
        **{name: around[name] for name in submission.passed},
        **submission.environment,
        "TRIMTAB_JOB": record.id,
        "TRIMTAB_ATTEMPT": str(record.run.attempt),
        **JobFiles.of(record.id).variables(),
        **_saving(job.checkpoint, len(record.run.parts)),
    }
    return Launch(
        key=record.key,
        workload=replace(job.workload, command=command),
        parts=tuple((part.node, part.workers) for part in record.run.parts),
        cpus=job.worker.cpus,
        memory=job.worker.memory,
        gpus=job.worker.gpus,
        environment=environment,
    )


def _saving(checkpoint: Checkpoint | None, nodes: int) -> dict[str, str]:
    """How often a job had best save by itself: as it said, else what loses least on so many nodes."""
    if checkpoint is None:
        return {}
    every = checkpoint.interval or float(daly_interval(checkpoint.seconds, gang_rate(nodes)))
    return {"TRIMTAB_SAVE_EVERY": f"{every:.0f}"}
