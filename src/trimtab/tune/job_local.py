"""A job's local run: made once, kept in Trimtab's home."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimtab.collect import Spec, TrainingJob, run_locally
from trimtab.core import StorageError, home
from trimtab.kernel import write_whole
from trimtab.predict import DataSet, LocalJob, local_job

LOCAL = ".local.json"
"""How the files of local runs end."""


def local_run(job: TrainingJob, spec: Spec, others: DataSet, tell: Callable[[str], None]) -> LocalJob:
    """The job's local run: as it comes with the data, else as it was kept, else made now."""
    given = others.local.get(job.name)
    if given is not None and {run.batch for run in given.runs} == set(job.batches):
        tell(f"{job.name}: its local run comes with the data")
        return given
    path = kept_at(job)
    told = kept_run(path)
    if told is None:
        count = 2 * len(job.batches)
        tell(f"{job.name} has no local run yet: it runs here {count} times for {spec.window:g} s, unlimited")
        told = run_locally(job, spec).plain()
        write_whole(path, json.dumps(told) + "\n")
    else:
        tell(f"{job.name}: its local run is in {path}; remove that when its code has changed")
    return local_job(str(path), job.name, told)


def kept_at(job: TrainingJob) -> Path:
    """Where its local run is kept: another command, folder or batch makes it another job."""
    told = json.dumps([job.command, str(job.folder), job.batches])
    return home() / "tune" / f"{job.name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}{LOCAL}"


def kept_run(path: Path) -> Any:
    """What is in such a file; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
