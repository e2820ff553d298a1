"""Which targets there are. One more is one module with a `write(job)`, and one line in `TARGETS`."""

from collections.abc import Callable, Mapping

from trimtab.core import Configuration, NotFoundError, Workload
from trimtab.engines.jobfiles import kubernetes, skypilot, slurm, vertex
from trimtab.engines.jobfiles.job import Job

TARGETS: Mapping[str, Callable[[Job], str]] = {
    "kubernetes": kubernetes.write,
    "skypilot": skypilot.write,
    "slurm": slurm.write,
    "vertex": vertex.write,
}


def targets() -> tuple[str, ...]:
    """The names `job_file` takes."""
    return tuple(TARGETS)


def job_file(
    target: str,
    workload: Workload,
    configuration: Configuration,
    *,
    expected_seconds: float | None = None,
    max_seconds: float | None = None,
    image: str | None = None,
) -> str:
    """The text of a file that starts `workload` on `configuration` with `target`'s own tool.

    `expected_seconds` is the predicted run time; it sets the time limit unless `max_seconds` does. `image` is
    the container image for targets that need one; None takes a public PyTorch image.
    """
    write = TARGETS.get(target)
    if write is None:
        raise NotFoundError(f'no job files for "{target}"; choose one of {", ".join(TARGETS)}')
    return write(Job(workload, configuration, expected_seconds, max_seconds, image))
